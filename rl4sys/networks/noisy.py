"""Noisy linear layers for exploration (Fortunato et al. 2018, arXiv:1706.10295)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

_SIGMA_0 = 0.5


class NoisyLinear(nn.Linear):
    """Linear layer with factorized noise on its weights (equation 9, section 3b), constant until `resample`."""

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        sigma = _SIGMA_0 / math.sqrt(inputs)
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma))
        # Torch saves buffers with the weights, so a resumed run continues with the same noise.
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))
        self.noise_disabled = False

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, *self.noisy())

    def noisy(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias with the current noise, or without noise if the noise is disabled."""
        if self.noise_disabled:
            return self.weight, self.bias
        of_weight, of_bias = self.noise()
        return self.weight + of_weight, self.bias + of_bias

    def noise(self) -> tuple[Tensor, Tensor]:
        """Return the current noise of weight and bias."""
        noise = torch.outer(self.output_noise, self.input_noise)
        return self.weight_sigma * noise, self.bias_sigma * self.output_noise

    def resample(self, rng: np.random.Generator) -> None:
        for noise in (self.input_noise, self.output_noise):
            drawn = torch.from_numpy(rng.standard_normal(len(noise)).astype(np.float32))
            noise.copy_(drawn.sign() * drawn.abs().sqrt())


def weights_of(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer, including the current noise of a noisy layer."""
    return layer.noisy() if isinstance(layer, NoisyLinear) else (layer.weight, layer.bias)


def resample_noise(network: nn.Module, rng: np.random.Generator) -> None:
    """Resample the noise of all noisy layers; before the first call the noise is zero."""
    for layer in _noisy_layers(network):
        layer.resample(rng)


@contextmanager
def without_noise(network: nn.Module) -> Iterator[None]:
    """Context manager that disables the noise of a network."""
    layers = _noisy_layers(network)
    before = [layer.noise_disabled for layer in layers]
    for layer in layers:
        layer.noise_disabled = True
    try:
        yield
    finally:
        for layer, disabled in zip(layers, before, strict=True):
            layer.noise_disabled = disabled


def _noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]
