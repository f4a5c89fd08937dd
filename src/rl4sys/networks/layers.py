"""Fully connected hidden layers, which most networks have somewhere, and how layers get their first weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.networks.base import NetworkConfig
from rl4sys.networks.native import CoreLayers
from rl4sys.networks.noisy import NoisyLinear, weights_of
from rl4sys.networks.writing import BodyWriter

HIDDEN_GAIN = math.sqrt(2)
_WIDEST, _DEEPEST = 16384, 64

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class LayersConfig(NetworkConfig):
    """What every network with fully connected layers can be told."""

    hidden_dims: list[int] = Field(default=[64, 64])
    """Width of each hidden layer, first to last; an empty list gives a linear map."""
    activation: Activation = "tanh"
    """Applied after every hidden layer."""
    layer_norm: bool = False
    """Normalise what each hidden layer gives, before the activation."""
    initialization: Literal["orthogonal", "uniform"] = "orthogonal"
    """First weights: orthogonal with zero biases, or torch's own (uniform by fan-in)."""

    @field_validator("hidden_dims", mode="before")
    @classmethod
    def _check_list(cls, widths: Any) -> Any:
        if not isinstance(widths, list):
            raise ValueError("it should be a list of widths, such as [64, 64]")  # noqa: TRY004 - pydantic's protocol
        return widths

    @field_validator("hidden_dims")
    @classmethod
    def _check_widths(cls, widths: list[int]) -> list[int]:
        if not all(1 <= width <= _WIDEST for width in widths) or len(widths) > _DEEPEST:
            raise ValueError(f"it should hold at most {_DEEPEST} widths between 1 and {_WIDEST}")
        return widths


class Hidden(nn.Module):
    """The hidden layers of a config, each with its activation; with none of them it changes nothing."""

    def __init__(self, inputs: int, config: LayersConfig, *, noisy: bool = False) -> None:
        super().__init__()
        make = NoisyLinear if noisy else nn.Linear
        self._widths = [inputs, *config.hidden_dims]
        self.width = self._widths[-1]
        self.layers = nn.ModuleList(make(a, b) for a, b in pairwise(self._widths))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in config.hidden_dims if config.layer_norm)
        self._activation, self._nonlinearity = config.activation, ACTIVATIONS[config.activation]()

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            x = self._nonlinearity(self.norms[index](x) if self.norms else x)
        return x

    def linears(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def weights(self) -> list[Tensor]:
        """Of each layer: weight and bias, then scale and shift where it is normalised."""
        found: list[Tensor] = []
        for index, layer in enumerate(self.linears()):
            found += weights_of(layer)
            if self.norms:
                found += self.norms[index].parameters()
        return found

    def in_core(self, outputs: int) -> CoreLayers | None:
        """These layers and a linear one after them, as the native core computes them; None if it cannot."""
        if not CoreLayers.possible(self._activation):
            return None
        norm = self.norms[0] if self.norms else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return CoreLayers([*self._widths, outputs], self._activation, norm)

    def write(self, writer: BodyWriter, source: int, label: str = "hidden.", rows: int = 1) -> int:
        """The layers for each of ``rows`` parts of the value ``source``."""
        for index, layer in enumerate(self.linears()):
            source = writer.linear(f"{label}{index}", layer, source, rows)
            norm = self.norms[index] if self.norms else None
            if isinstance(norm, nn.LayerNorm):
                source = writer.layer_norm(f"{label}{index}.norm", (norm.weight, norm.bias), norm.eps, source, rows)
            source = writer.add(self._activation, source)
        return source


def initialize(config: LayersConfig, layers: Iterable[nn.Linear | nn.Conv2d], gain: float) -> None:
    """Give layers their first weights, unless they are to keep torch's own."""
    if config.initialization == "uniform":
        return
    for layer in layers:
        nn.init.orthogonal_(layer.weight, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
