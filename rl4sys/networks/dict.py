"""Network with a separate encoder per observation, joined by fully connected layers."""

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
    concat_observations,
    export,
    memory_size,
    observation_names,
)
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.layers import ACTIVATIONS, HIDDEN_GAIN, Hidden, LayersConfig, initialize
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Spec


class DictNetworkConfig(LayersConfig):
    """Options of the `dict` network."""

    type: str = "dict"
    """Network type."""
    encoders: dict[str, SerializeAsAny[NetworkConfig]] = Field(default={})
    """Network block of each encoder, by observation name, such as `{camera: {type: cnn}}`; observations without an
    encoder are flattened."""
    encoder_outputs: int = Field(default=64, gt=0, le=16384)
    """Number of outputs of each encoder, before the activation."""
    hidden_dims: list[int] = Field(default=[64])
    """Width of each hidden layer after the encoders, first to last."""

    @field_validator("encoders", mode="before")
    @classmethod
    def _parse_encoders(cls, encoders: Any) -> Any:
        if not isinstance(encoders, dict):
            raise ValueError("expected a block with a network for each observation")  # noqa: TRY004
        return {name: _parse_encoder(str(name), settings) for name, settings in encoders.items()}


def _parse_encoder(name: str, settings: Any) -> NetworkConfig:
    if isinstance(settings, NetworkConfig):
        return settings
    if not isinstance(settings, dict) or not isinstance(settings.get("type", "mlp"), str):
        raise ConfigError(f"encoders.{name} is {settings!r:.80}; expected a block such as {{type: mlp}}")
    options: NetworkConfig = parse(NETWORKS.get(settings.get("type", "mlp")).Config, settings, f"encoders.{name}")
    return options


class DictNetwork(nn.Module):
    Config = DictNetworkConfig

    def __init__(self, config: DictNetworkConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec, names = blueprint.spec, observation_names(blueprint.spec)
        self._encoded = [name for name in names if name in config.encoders]
        self._others = [name for name in names if name not in config.encoders]
        for unknown in set(config.encoders) - set(names):
            raise ConfigError(
                f"encoders.{unknown} is not an observation{did_you_mean(unknown, names)} "
                f"Observations: {', '.join(names)}."
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
            features.append(concat_observations(observation, self._others))
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

    def _build(self, config: DictNetworkConfig, blueprint: Blueprint, name: str) -> nn.Module:
        settings, spec = config.encoders[name], blueprint.spec
        seen = {n: box for n, box in spec.observation.items() if n in (name, MASK)}
        needed = Blueprint(Spec(seen, spec.action), config.encoder_outputs, HIDDEN_GAIN)
        network: nn.Module = NETWORKS.get(settings.type)(settings, needed)
        if memory_size(network):
            raise ConfigError(f"encoders.{name} is a {settings.type}, but an encoder cannot be recurrent; use mlp")
        return network
