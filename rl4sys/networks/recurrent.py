"""Recurrent networks: fully connected layers, a GRU or LSTM cell, and a linear output layer."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.networks.base import Blueprint, Tensors, flatten
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.layers import HIDDEN_GAIN, Hidden, LayersConfig, initialize
from rl4sys.policy.program import ROW
from rl4sys.policy.snapshot import input_size

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RecurrentConfig(LayersConfig):
    """Options of recurrent networks."""

    hidden_dims: list[int] = Field(default=[64])
    """Width of each layer before the cell, first to last; an empty list feeds observations directly into the cell."""
    hidden_size: int = Field(default=64, gt=0, le=4096)
    """Width of the recurrent cell."""


class GRUConfig(RecurrentConfig):
    """Options of the `gru` network."""

    type: str = "gru"
    """Network type."""


class LSTMConfig(RecurrentConfig):
    """Options of the `lstm` network."""

    type: str = "lstm"
    """Network type."""


class _RecurrentNetwork(nn.Module):
    """Base class of `GRU` and `LSTM`. The memory (recurrent state) is the concatenation of the cell's states."""

    cell: nn.GRU | nn.LSTM
    memory_size: int

    def __init__(self, config: RecurrentConfig, blueprint: Blueprint, kind: type[nn.GRU] | type[nn.LSTM]) -> None:
        super().__init__()
        self._spec, self._operation = blueprint.spec, kind.__name__.lower()
        self.hidden = Hidden(input_size(blueprint.spec), config)
        self.cell = kind(self.hidden.width, config.hidden_size, batch_first=True)
        self.output = nn.Linear(config.hidden_size, blueprint.outputs)
        self.memory_size = config.hidden_size * (2 if kind is nn.LSTM else 1)
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        if config.initialization == "orthogonal":
            self._initialize_cell()
        initialize(config, [self.output], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        """Run one step from a zero recurrent state."""
        rows = len(next(iter(observation.values())))
        return self.step(observation, self.output.weight.new_zeros(rows, self.memory_size))[0]

    def step(self, observation: Tensors, memory: Tensor) -> tuple[Tensor, Tensor]:
        features = self.hidden(flatten(observation, self._spec))
        seen, memory = self._run(features[:, None], memory)
        return self.output(seen[:, 0]), memory

    def sequence(self, observation: Tensors, memory: Tensor) -> Tensor:
        batch, length = next(iter(observation.values())).shape[:2]
        steps = {name: column.flatten(0, 1) for name, column in observation.items()}
        features = self.hidden(flatten(steps, self._spec)).reshape(batch, length, -1)
        outputs: Tensor = self.output(self._run(features, memory)[0])
        return outputs

    def export(self, prefix: str) -> Body:
        writer = BodyWriter(prefix)
        features = self.hidden.write(writer, ROW)
        weights = {f"cell.{name}": getattr(self.cell, f"{name}_l0") for name in _WEIGHTS}
        state = writer.add(self._operation, features, weights=weights, memory=0)
        writer.linear("output", self.output, state)
        return writer.body()

    def _run(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the cell at each step, and the final recurrent state."""
        # Torch expects a leading axis for layers; there is one layer.
        states = tuple(state.contiguous() for state in torch.split(memory[None], self.cell.hidden_size, dim=2))
        if isinstance(self.cell, nn.GRU):
            seen, after = self.cell(features, *states)
            return seen, after[0]
        seen, both = self.cell(features, states)
        return seen, torch.cat(both, dim=2)[0]

    def _initialize_cell(self) -> None:
        for name, parameter in self.cell.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)


class GRU(_RecurrentNetwork):
    Config = GRUConfig

    def __init__(self, config: RecurrentConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint, nn.GRU)


class LSTM(_RecurrentNetwork):
    Config = LSTMConfig

    def __init__(self, config: RecurrentConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint, nn.LSTM)
