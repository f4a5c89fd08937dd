"""Fully connected hidden layers and weight initialization."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.networks.base import NetworkConfig
from rl4sys.networks.body_writer import BodyWriter
from rl4sys.networks.native import CoreLayers
from rl4sys.networks.noisy import NoisyLinear, weights_of

HIDDEN_GAIN = math.sqrt(2)
_MAX_WIDTH, _MAX_DEPTH = 16384, 64

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class LayersConfig(NetworkConfig):
    """Options of all networks with fully connected layers."""

    hidden_dims: list[int] = Field(default=[64, 64])
    """Width of each hidden layer, first to last; an empty list gives a linear map."""
    activation: Activation = "tanh"
    """Activation after every hidden layer."""
    layer_norm: bool = False
    """Apply layer normalization in each hidden layer, before the activation."""
    initialization: Literal["orthogonal", "uniform"] = "orthogonal"
    """Weight initialization: orthogonal with zero biases, or torch's default (uniform by fan-in)."""

    @field_validator("hidden_dims", mode="before")
    @classmethod
    def _check_list(cls, widths: Any) -> Any:
        if not isinstance(widths, list):
            raise ValueError("expected a list of layer widths, such as [64, 64]")  # noqa: TRY004 - pydantic's protocol
        return widths

    @field_validator("hidden_dims")
    @classmethod
    def _check_widths(cls, widths: list[int]) -> list[int]:
        if not all(1 <= width <= _MAX_WIDTH for width in widths) or len(widths) > _MAX_DEPTH:
            raise ValueError(f"expected at most {_MAX_DEPTH} widths from 1 to {_MAX_WIDTH}")
        return widths


class Hidden(nn.Module):
    """Fully connected hidden layers, each with its activation; the identity if ``hidden_dims`` is empty."""

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
        """Return weight and bias of each layer, followed by scale and shift of its layer norm."""
        found: list[Tensor] = []
        for index, layer in enumerate(self.linears()):
            found += weights_of(layer)
            if self.norms:
                found += self.norms[index].parameters()
        return found

    def core_layers(self, outputs: int) -> CoreLayers | None:
        """Return these layers and a linear output layer for the native core; None if the activation is unsupported."""
        if not CoreLayers.is_supported(self._activation):
            return None
        norm = self.norms[0] if self.norms else None
        assert norm is None or isinstance(norm, nn.LayerNorm)
        return CoreLayers([*self._widths, outputs], self._activation, norm)

    def write(self, writer: BodyWriter, source: int, label: str = "hidden.", rows: int = 1) -> int:
        """Add the layers, applied to each row of the value ``source``, and return the number of the result."""
        for index, layer in enumerate(self.linears()):
            source = writer.linear(f"{label}{index}", layer, source, rows)
            norm = self.norms[index] if self.norms else None
            if isinstance(norm, nn.LayerNorm):
                source = writer.layer_norm(f"{label}{index}.norm", (norm.weight, norm.bias), norm.eps, source, rows)
            source = writer.add(self._activation, source)
        return source


def initialize(config: LayersConfig, layers: Iterable[nn.Linear | nn.Conv2d], gain: float) -> None:
    """Initialize the layers orthogonally with zero biases, or keep torch's default if ``initialization`` is uniform."""
    if config.initialization == "uniform":
        return
    for layer in layers:
        nn.init.orthogonal_(layer.weight, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
