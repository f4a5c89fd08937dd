"""Small transformer over the rows of one observation, such as items or a history (Vaswani et al. 2017).

Uses pre-layer normalization (Xiong et al. 2020), which needs no learning rate warm-up.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.networks.attention import SelfAttention, mean_of_rows, rows_observation, write_norm
from rl4sys.networks.base import Blueprint, Tensors, concat_observations, observation_names
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.layers import HIDDEN_GAIN, Hidden, LayersConfig, initialize

_EXPANSION = 4


class TransformerConfig(LayersConfig):
    """Options of the `transformer` network."""

    type: str = "transformer"
    """Network type."""
    observation: str | None = None
    """Name of the observation with shape (rows, features); null selects the only observation with 2 axes."""
    width: int = Field(default=64, gt=0, le=4096)
    """Embedding width of each row."""
    heads: int = Field(default=4, gt=0, le=64)
    """Number of attention heads; must divide the width."""
    layers: int = Field(default=2, gt=0, le=64)
    """Number of transformer layers."""
    positions: bool = True
    """Add learned position embeddings, for ordered rows such as a history; set false if the order has no meaning."""
    hidden_dims: list[int] = Field(default=[64])
    """Width of each hidden layer after the mean over rows, first to last. All other observations are
    additional inputs of the first of these layers."""


class Transformer(nn.Module):
    Config = TransformerConfig

    def __init__(self, config: TransformerConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = spec = blueprint.spec
        self._name = rows_observation(spec, config.observation, "transformer")
        self._others = [name for name in observation_names(spec) if name != self._name]
        self._rows, features = spec.observation[self._name].shape
        self.embedding = nn.Linear(features, config.width)
        self.positions = nn.Parameter(torch.zeros(self._rows, config.width)) if config.positions else None
        self.layers = nn.ModuleList(_Layer(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        joined = config.width + sum(spec.observation[name].size for name in self._others)
        self.hidden = Hidden(joined, config)
        self.output = nn.Linear(self.hidden.width, blueprint.outputs)
        if self.positions is not None:
            nn.init.normal_(self.positions, std=0.02)
        initialize(config, [self.embedding, *self._linears()], 1.0)
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, [self.output], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        x = self.embedding(observation[self._name].float())
        if self.positions is not None:
            x = x + self.positions
        for layer in self.layers:
            x = layer(x)
        features = mean_of_rows(self.norm(x), None)
        if self._others:
            features = torch.cat([features, concat_observations(observation, self._others)], dim=1)
        outputs: Tensor = self.output(self.hidden(features))
        return outputs

    def export(self, prefix: str) -> Body:
        writer, rows = BodyWriter(prefix), self._rows
        x = writer.observations(self._spec, [self._name])
        x = writer.linear("embedding", self.embedding, x, rows)
        if self.positions is not None:
            x = writer.add("bias", x, weights={"positions": self.positions.reshape(-1)})
        for index, layer in enumerate(self._layers()):
            x = layer.write(writer, f"layer{index}", x, rows)
        features = [writer.add("mean_rows", write_norm(writer, "norm", self.norm, x, rows), rows=rows)]
        if self._others:
            features.append(writer.observations(self._spec, self._others))
        writer.linear("output", self.output, self.hidden.write(writer, writer.concat(features)))
        return writer.body()

    def _layers(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    def _linears(self) -> list[nn.Linear]:
        return [linear for layer in self._layers() for linear in layer.linears()]


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, _EXPANSION * width), nn.Linear(_EXPANSION * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x, None)
        changed: Tensor = self.narrow(nn.functional.gelu(self.widen(self.norm(x))))
        return x + changed

    def linears(self) -> list[nn.Linear]:
        return [*self.attention.linears(), self.widen, self.narrow]

    def write(self, writer: BodyWriter, label: str, source: int, rows: int) -> int:
        attended = self.attention.write(writer, f"{label}.attention", source, rows)
        normal = write_norm(writer, f"{label}.norm", self.norm, attended, rows)
        wide = writer.add("gelu", writer.linear(f"{label}.widen", self.widen, normal, rows))
        return writer.add("add", attended, writer.linear(f"{label}.narrow", self.narrow, wide, rows))
