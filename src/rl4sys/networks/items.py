"""One kernel for every item of a list, such as jobs in a queue, so that an item scores alike wherever it stands.

The kernel-based actor of RLScheduler (Zhang et al. 2020), with attention between items as an option.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.networks.attention import SelfAttention, mean_of_rows, rows_observation
from rl4sys.networks.base import Blueprint, Tensors, seen_names, side_by_side
from rl4sys.networks.layers import HIDDEN_GAIN, Activation, Hidden, LayersConfig, initialize
from rl4sys.networks.writing import Body, BodyWriter
from rl4sys.policy.program import MASK_NUMBERS
from rl4sys.spec import MASK, MultiDiscrete, Spec


class ItemsConfig(LayersConfig):
    """Options of the `items` network."""

    type: str = "items"
    """Which network."""
    observation: str | None = None
    """The observation with 2 axes, items x features; null where there is only one."""
    hidden_dims: list[int] = Field(default=[32, 16])
    """Width of each layer of the kernel that every item goes through, first to last."""
    activation: Activation = "relu"
    """Applied after every hidden layer."""
    attention_heads: int = Field(default=0, ge=0, le=64)
    """Heads of a layer of attention between items after the kernel, which share its width; 0 for no such layer."""


class Items(nn.Module):
    """With as many outputs as items, one for each; further outputs, and all where there are fewer, are of the pool.

    Of several choices at once the first is the one among items, if it has as many alternatives.

    The pool is the mean over items. Where a mask says that one of the first actions, those on the items, is illegal,
    that item takes no part in the pool, nor in attention.
    """

    Config = ItemsConfig

    def __init__(self, config: ItemsConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = spec = blueprint.spec
        self._name = rows_observation(spec, config.observation, "items")
        self._others = [name for name in seen_names(spec) if name != self._name]
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
            others = side_by_side(observation, self._others)
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
    """How many of the outputs, or of the mask, may be on items."""
    return min(outputs, spec.action.choices[0]) if isinstance(spec.action, MultiDiscrete) else outputs
