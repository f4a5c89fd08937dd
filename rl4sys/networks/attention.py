"""Self-attention between the rows of an observation."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import observation_names
from rl4sys.networks.body_writer import BodyWriter
from rl4sys.spec import Spec

_MASKED_SCORE = -1e9
"""Score of a masked key: low enough to get no weight, but finite, so that gradients are not NaN."""


class SelfAttention(nn.Module):
    """Residual self-attention between the rows of x: x + attention(layer_norm(x)). Masked rows are ignored."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(
                f"the network width is {width}; expected a multiple of the number of attention heads, {heads}"
            )
        self._heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, legal: Tensor | None) -> Tensor:
        normal = self.norm(x)
        query, key, value = (self._by_head(layer(normal)) for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        if legal is not None:
            scores = scores.masked_fill(~legal[:, None, None], _MASKED_SCORE)
        shares = scores.softmax(-1)
        if legal is not None:
            # If no row is legal, the softmax is uniform, but the attention weights should be 0.
            shares = shares * legal[:, None, None]
        mixed = (shares @ value).transpose(1, 2).reshape(x.shape)
        attended: Tensor = x + self.join(mixed)
        return attended

    def linears(self) -> list[nn.Linear]:
        return [self.query, self.key, self.value, self.join]

    def write(self, writer: BodyWriter, label: str, source: int, rows: int, legal: int | None = None) -> int:
        """Add the operations of this layer to the program, and return the number of the result value.

        ``source`` and ``legal`` (the mask) are the numbers of the input values.
        """
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
    """Return the mean over the legal rows; 0 if no row is legal."""
    if legal is None:
        return x.mean(1)
    return (x * legal[:, :, None]).sum(1) / legal.sum(1, keepdim=True).clamp(min=1)


def write_norm(writer: BodyWriter, label: str, norm: nn.LayerNorm, source: int, rows: int) -> int:
    return writer.layer_norm(label, (norm.weight, norm.bias), norm.eps, source, rows)


def rows_observation(spec: Spec, given: str | None, network: str) -> str:
    """Return the name of the observation with 2 axes that is the input of the network.

    ``given`` is the configured name; None selects the only observation with 2 axes. Raises `ConfigError` if the named
    observation does not have 2 axes, or if ``given`` is None and not exactly one observation has 2 axes.
    """
    found = [name for name in observation_names(spec) if len(spec.observation[name].shape) == 2]
    if given is not None and given not in found:
        raise ConfigError(
            f"observation is {given!r}, but a network of type {network} needs an observation with 2 axes; observations "
            f"with 2 axes: {', '.join(found) or 'none'}"
        )
    if given is None and len(found) != 1:
        shapes = ", ".join(f"{name} with shape {spec.observation[name].shape}" for name in observation_names(spec))
        raise ConfigError(
            f"a network of type {network} needs one observation with 2 axes (rows x features), but the observations "
            f"are {shapes}; " + ("select one with the option `observation`" if found else "use mlp")
        )
    return given if given is not None else found[0]
