"""Multilayer perceptron."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl4sys.networks.base import Blueprint, Tensors, flatten
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.layers import HIDDEN_GAIN, Hidden, LayersConfig, initialize
from rl4sys.networks.native import CoreLayers
from rl4sys.networks.noisy import NoisyLinear, weights_of
from rl4sys.policy.program import ROW
from rl4sys.policy.snapshot import input_size


class MLPConfig(LayersConfig):
    """Options of the `mlp` network."""

    noisy: bool = False
    """Use noisy layers for exploration (Fortunato et al. 2018); only for algorithms that resample the noise."""


class MLP(nn.Module):
    Config = MLPConfig

    def __init__(self, config: MLPConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self._spec = blueprint.spec
        self.hidden = Hidden(input_size(blueprint.spec), config, noisy=config.noisy)
        make = NoisyLinear if config.noisy else nn.Linear
        self.output = make(self.hidden.width, blueprint.outputs)
        initialize(config, self.hidden.linears(), HIDDEN_GAIN)
        initialize(config, [self.output], blueprint.output_gain)
        self._core: CoreLayers | None = None
        self._fixed_weights = None if config.noisy else self._weights()
        """Weight tensors of all layers; None if the layers are noisy, because their weights change in every pass."""
        self._parts = list(self.modules())

    def forward(self, observation: Tensors) -> Tensor:
        row = self.row(observation)
        if self._core is None or row.device.type != "cpu":
            return self._layer_by_layer(row)
        if self._has_forward_hooks():
            # Also run the layers in torch, only to call the forward hooks, because the core does not call them.
            with torch.no_grad():
                self._layer_by_layer(row)
        return self._core(row.contiguous(), self._weights() if self._fixed_weights is None else self._fixed_weights)

    def _has_forward_hooks(self) -> bool:
        return any(part._forward_hooks or part._forward_pre_hooks for part in self._parts)

    def _weights(self) -> list[Tensor]:
        return [*self.hidden.weights(), *weights_of(self.output)]

    def _layer_by_layer(self, row: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.hidden(row))
        return outputs

    def row(self, observation: Tensors) -> Tensor:
        return flatten(observation, self._spec)

    def core_layers(self) -> tuple[CoreLayers, list[nn.Parameter]] | None:
        if self._core is None or self._fixed_weights is None or self._has_forward_hooks():
            return None
        return self._core, [weight for weight in self._fixed_weights if isinstance(weight, nn.Parameter)]

    def compute_natively(self) -> bool:
        self._core = self.hidden.core_layers(self.output.out_features)
        return self._core is not None

    def export(self, prefix: str) -> Body:
        writer = BodyWriter(prefix)
        features = self.hidden.write(writer, ROW, label="")
        writer.linear(str(len(self.hidden.layers)), self.output, features)
        return writer.body()
