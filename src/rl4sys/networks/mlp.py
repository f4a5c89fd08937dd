"""Fully connected layers."""

from __future__ import annotations

from torch import Tensor, nn

from rl4sys.networks.base import Blueprint, Tensors, flatten
from rl4sys.networks.layers import HIDDEN_GAIN, Hidden, LayersConfig, initialize
from rl4sys.networks.noisy import NoisyLinear, weights_of
from rl4sys.networks.writing import Body, BodyWriter
from rl4sys.policy.program import ROW
from rl4sys.policy.snapshot import input_size


class MLPConfig(LayersConfig):
    """Options of the `mlp` network."""

    noisy: bool = False
    """Weights carry learnt noise to explore by (Fortunato et al. 2018); for algorithms that renew it."""


class MLP(nn.Module):
    Config = MLPConfig

    def __init__(self, config: MLPConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = blueprint.spec
        self.hidden = Hidden(input_size(blueprint.spec), config, noisy=config.noisy)
        make = NoisyLinear if config.noisy else nn.Linear
        self.output = make(self.hidden.width, blueprint.outputs)
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, [self.output], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.output(self.hidden(flatten(observation, self._spec)))
        return outputs

    def export(self, prefix: str) -> Body:
        writer = BodyWriter(prefix)
        features = self.hidden.write(writer, ROW, label="")
        writer.linear(str(len(self.hidden.layers)), weights_of(self.output), features)
        return writer.body()
