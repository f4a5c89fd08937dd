"""Fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.networks.base import Blueprint, Body, NetworkConfig, Tensors, flatten, to_array
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot import input_size
from rl4sys.spec import Array

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
_HIDDEN_GAIN = math.sqrt(2)
_WIDEST, _DEEPEST = 16384, 64


class MLPConfig(NetworkConfig):
    """Options of the `mlp` network."""

    hidden_dims: list[int] = Field(default=[64, 64])
    """Width of each hidden layer, first to last; an empty list gives a linear map."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """Applied after every hidden layer."""
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


class MLP(nn.Module):
    Config = MLPConfig

    def __init__(self, config: MLPConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec, self._activation = blueprint.spec, config.activation
        widths = [input_size(blueprint.spec), *config.hidden_dims, blueprint.outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self._nonlinearity = _ACTIVATIONS[config.activation]()
        if config.initialization == "orthogonal":
            self._initialize_orthogonally(blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        x = flatten(observation, self._spec)
        for layer in self.layers[:-1]:
            x = self._nonlinearity(layer(x))
        output: Tensor = self.layers[-1](x)
        return output

    def export(self, prefix: str) -> Body:
        operations: list[Operation] = []
        weights: dict[str, Array] = {}
        for index, layer in enumerate(self._linear_layers()):
            names = (f"{prefix}.{index}.weight", f"{prefix}.{index}.bias")
            operations += [Operation("linear", names), Operation(self._activation)]
            weights |= dict(zip(names, (to_array(layer.weight), to_array(layer.bias)), strict=True))
        return Body(tuple(operations[:-1]), weights)

    def _linear_layers(self) -> Iterator[nn.Linear]:
        return (layer for layer in self.layers if isinstance(layer, nn.Linear))

    def _initialize_orthogonally(self, output_gain: float) -> None:
        gains = [_HIDDEN_GAIN] * (len(self.layers) - 1) + [output_gain]
        for layer, gain in zip(self._linear_layers(), gains, strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
