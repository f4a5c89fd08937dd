"""Attention between the rows of an observation, and which observation that is."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import seen_names
from rl4sys.networks.writing import BodyWriter
from rl4sys.spec import Spec

_NEVER = -1e9
"""A score low enough that its key is never looked at, yet finite, so that gradients are numbers."""


class SelfAttention(nn.Module):
    """x + attention(layer_norm(x)) among the rows of x; those that are not legal are not looked at."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{heads} attention heads cannot share a width of {width}; it should be a multiple")
        self._heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, legal: Tensor | None) -> Tensor:
        normal = self.norm(x)
        query, key, value = (self._by_head(layer(normal)) for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        if legal is not None:
            scores = scores.masked_fill(~legal[:, None, None], _NEVER)
        shares = scores.softmax(-1)
        if legal is not None:
            # Where none is legal they are all alike, and should be 0.
            shares = shares * legal[:, None, None]
        mixed = (shares @ value).transpose(1, 2).reshape(x.shape)
        attended: Tensor = x + self.join(mixed)
        return attended

    def linears(self) -> list[nn.Linear]:
        return [self.query, self.key, self.value, self.join]

    def write(self, writer: BodyWriter, label: str, source: int, rows: int, legal: int | None = None) -> int:
        """``legal`` is the value that says which rows are."""
        normal = write_norm(writer, f"{label}.norm", self.norm, source, rows)
        layers = {"query": self.query, "key": self.key, "value": self.value}
        sources = [writer.linear(f"{label}.{name}", layer, normal, rows) for name, layer in layers.items()]
        sources += [legal] if legal is not None else []
        mixed = writer.add("attention", *sources, heads=self._heads, rows=rows, keys=rows)
        joined = writer.linear(f"{label}.join", self.join, mixed, rows)
        return writer.add("add", source, joined)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self._heads, -1).transpose(1, 2)


def mean_of_rows(x: Tensor, legal: Tensor | None) -> Tensor:
    """The mean over the legal rows, 0 where none is."""
    if legal is None:
        return x.mean(1)
    return (x * legal[:, :, None]).sum(1) / legal.sum(1, keepdim=True).clamp(min=1)


def write_norm(writer: BodyWriter, label: str, norm: nn.LayerNorm, source: int, rows: int) -> int:
    return writer.layer_norm(label, (norm.weight, norm.bias), norm.eps, source, rows)


def rows_observation(spec: Spec, given: str | None, network: str) -> str:
    """The name of the observation with 2 axes that the network is for."""
    found = [name for name in seen_names(spec) if len(spec.observation[name].shape) == 2]
    if given is not None and given not in found:
        raise ConfigError(f"observation is {given!r}; a network of type {network} takes one with 2 axes: {found}")
    if given is None and len(found) != 1:
        shapes = ", ".join(f"{name} of {spec.observation[name].shape}" for name in seen_names(spec))
        raise ConfigError(
            f"a network of type {network} needs one observation with 2 axes, rows of features; there is {shapes}. "
            + ("Name one as `observation`" if found else "Use mlp")
        )
    return given if given is not None else found[0]
