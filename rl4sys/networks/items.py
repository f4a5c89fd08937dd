"""Network that scores every item of a list, such as jobs in a queue, with the same layers (the kernel).

The score of an item does not depend on its position. This is the kernel-based actor of RLScheduler (Zhang et al.
2020), with optional attention between items.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.networks.attention import SelfAttention, mean_of_rows, rows_observation
from rl4sys.networks.base import Blueprint, Tensors, concat_observations, observation_names
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.layers import HIDDEN_GAIN, Activation, Hidden, LayersConfig, initialize
from rl4sys.policy.program import MASK_NUMBERS
from rl4sys.spec import MASK, MultiDiscrete, Spec


class ItemsConfig(LayersConfig):
    """Options of the `items` network."""

    type: str = "items"
    """Network type."""
    observation: str | None = None
    """Name of the observation with shape (items, features); null selects the only observation with 2 axes."""
    hidden_dims: list[int] = Field(default=[32, 16])
    """Width of each hidden layer, first to last; the layers are applied to every item separately."""
    activation: Activation = "relu"
    """Activation after every hidden layer."""
    attention_heads: int = Field(default=0, ge=0, le=64)
    """Number of heads of the attention layer between items, after the hidden layers; 0 disables attention."""


class Items(nn.Module):
    """Network that scores items: the first outputs are the scores, one per item.

    All further outputs are computed from the pool, which is the mean over the items. If there are fewer outputs than
    items, all outputs are computed from the pool. With MultiDiscrete actions, the scores belong to the first action
    dimension, if that dimension has enough actions. Items whose action is masked are excluded from the pool and from
    attention.
    """

    Config = ItemsConfig

    def __init__(self, config: ItemsConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = spec = blueprint.spec
        self._name = rows_observation(spec, config.observation, "items")
        self._others = [name for name in observation_names(spec) if name != self._name]
        self._items, features = spec.observation[self._name].shape
        self._masked = spec.masked and _on_items(spec, spec.observation[MASK].size) >= self._items
        self.hidden = Hidden(features + sum(spec.observation[name].size for name in self._others), config)
        width, heads = self.hidden.width, config.attention_heads
        self.attention = SelfAttention(width, heads) if heads else None
        scored = _on_items(spec, blueprint.outputs) >= self._items
        pooled = blueprint.outputs - self._items * scored
        self.score = nn.Linear(width, 1) if scored else None
        self.pool = nn.Linear(width, pooled) if pooled else None
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, self.attention.linears() if self.attention else [], 1.0)
        initialize(config, [layer for layer in (self.score, self.pool) if layer is not None], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        x = observation[self._name].float()
        if self._others:
            others = concat_observations(observation, self._others)
            x = torch.cat([x, others[:, None].expand(-1, self._items, -1)], dim=2)
        legal = observation[MASK][:, : self._items] if self._masked else None
        x = self.hidden(x)
        x = self.attention(x, legal) if self.attention is not None else x
        outputs = [self.score(x)[:, :, 0]] if self.score is not None else []
        outputs += [self.pool(mean_of_rows(x, legal))] if self.pool is not None else []
        return torch.cat(outputs, dim=1)

    def export(self, prefix: str) -> Body:
        writer, items = BodyWriter(prefix), self._items
        x = writer.observations(self._spec, [self._name])
        if self._others:
            x = writer.add("join_rows", x, writer.observations(self._spec, self._others), rows=items)
        legal = self._write_legal(writer)
        x = self.hidden.write(writer, x, rows=items)
        if self.attention is not None:
            x = self.attention.write(writer, "attention", x, items, legal)
        outputs = [writer.linear("score", self.score, x, items)] if self.score is not None else []
        if self.pool is not None:
            mean = writer.add("mean_rows", *([x] if legal is None else [x, legal]), rows=items)
            outputs.append(writer.linear("pool", self.pool, mean))
        writer.concat(outputs)
        return writer.body()

    def _write_legal(self, writer: BodyWriter) -> int | None:
        if not self._masked or (self.attention is None and self.pool is None):
            return None
        if self._spec.observation[MASK].size == self._items:
            return MASK_NUMBERS
        return writer.add("slice", MASK_NUMBERS, start=0, length=self._items)


def _on_items(spec: Spec, outputs: int) -> int:
    """Return how many of the outputs can belong to items: at most the first dimension of a MultiDiscrete action."""
    return min(outputs, spec.action.choices[0]) if isinstance(spec.action, MultiDiscrete) else outputs
