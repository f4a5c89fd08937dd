"""An encoder of its own for each named observation, and fully connected layers over what all of them give."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, SerializeAsAny, field_validator
from torch import Tensor, nn

from rl4sys.config import did_you_mean, parse
from rl4sys.errors import ConfigError
from rl4sys.networks.base import (
    Blueprint,
    NetworkConfig,
    Tensors,
    export,
    memory_size,
    seen_names,
    side_by_side,
)
from rl4sys.networks.layers import ACTIVATIONS, HIDDEN_GAIN, Hidden, LayersConfig, initialize
from rl4sys.networks.writing import Body, BodyWriter
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Spec


class NamedConfig(LayersConfig):
    """Options of the `dict` network."""

    type: str = "dict"
    """Which network."""
    encoders: dict[str, SerializeAsAny[NetworkConfig]] = Field(default={})
    """Observation name → the block of the network that encodes it, `{type: cnn, ...}`; others are taken flat."""
    encoder_outputs: int = Field(default=64, gt=0, le=16384)
    """Numbers that each encoder gives, to which the activation is applied."""
    hidden_dims: list[int] = Field(default=[64])
    """Width of each layer over all that was encoded, first to last."""

    @field_validator("encoders", mode="before")
    @classmethod
    def _parse_encoders(cls, encoders: Any) -> Any:
        if not isinstance(encoders, dict):
            raise ValueError("it should be a block with a network for each observation")  # noqa: TRY004
        return {name: _parse_encoder(str(name), settings) for name, settings in encoders.items()}


def _parse_encoder(name: str, settings: Any) -> NetworkConfig:
    if isinstance(settings, NetworkConfig):
        return settings
    if not isinstance(settings, dict) or not isinstance(settings.get("type", "mlp"), str):
        raise ConfigError(f"encoders.{name} is {settings!r:.80}; it should be a block such as {{type: mlp}}")
    options: NetworkConfig = parse(NETWORKS.get(settings.get("type", "mlp")).Config, settings, f"encoders.{name}")
    return options


class Named(nn.Module):
    Config = NamedConfig

    def __init__(self, config: NamedConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec, names = blueprint.spec, seen_names(blueprint.spec)
        self._encoded = [name for name in names if name in config.encoders]
        self._others = [name for name in names if name not in config.encoders]
        for unknown in set(config.encoders) - set(names):
            raise ConfigError(
                f"encoders.{unknown} is not an observation{did_you_mean(unknown, names)} There is {', '.join(names)}."
            )
        self.encoders = nn.ModuleList(self._build(config, blueprint, name) for name in self._encoded)
        flat = sum(blueprint.spec.observation[name].size for name in self._others)
        self.hidden = Hidden(len(self._encoded) * config.encoder_outputs + flat, config)
        self.output = nn.Linear(self.hidden.width, blueprint.outputs)
        self._activation, self._nonlinearity = config.activation, ACTIVATIONS[config.activation]()
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, [self.output], blueprint.output_gain)

    def forward(self, observation: Tensors) -> Tensor:
        features = [self._nonlinearity(encoder(observation)) for encoder in self.encoders]
        if self._others:
            features.append(side_by_side(observation, self._others))
        outputs: Tensor = self.output(self.hidden(torch.cat(features, dim=1)))
        return outputs

    def export(self, prefix: str) -> Body:
        writer, features = BodyWriter(prefix), []
        for name, encoder in zip(self._encoded, self.encoders, strict=True):
            row = writer.observations(self._spec, [name])
            encoded = writer.include(export(encoder, f"{prefix}.{name}"), row)
            features.append(writer.add(self._activation, encoded))
        if self._others:
            features.append(writer.observations(self._spec, self._others))
        writer.linear("output", self.output, self.hidden.write(writer, writer.concat(features)))
        return writer.body()

    def _build(self, config: NamedConfig, blueprint: Blueprint, name: str) -> nn.Module:
        settings, spec = config.encoders[name], blueprint.spec
        seen = {n: box for n, box in spec.observation.items() if n in (name, MASK)}
        needed = Blueprint(Spec(seen, spec.action), config.encoder_outputs, HIDDEN_GAIN)
        network: nn.Module = NETWORKS.get(settings.type)(settings, needed)
        if memory_size(network):
            raise ConfigError(f"encoders.{name} is a {settings.type}, which remembers; an encoder cannot, so use mlp")
        return network
