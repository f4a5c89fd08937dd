"""Linear layers whose weights carry learnt noise, to explore by (Fortunato et al. 2018, arXiv:1706.10295)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

_SIGMA_0 = 0.5


class NoisyLinear(nn.Linear):
    """weight and bias are the means of equation 9; the noise, factorised (section 3b), stays until it is renewed."""

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        sigma = _SIGMA_0 / math.sqrt(inputs)
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma))
        # Among what is saved, so that a resumed run goes on with the noise it had.
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))
        self.quiet = False

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, *self.noisy())

    def noisy(self) -> tuple[Tensor, Tensor]:
        """Weight and bias with the noise of now."""
        if self.quiet:
            return self.weight, self.bias
        of_weight, of_bias = self.noise()
        return self.weight + of_weight, self.bias + of_bias

    def noise(self) -> tuple[Tensor, Tensor]:
        """What the noise of now adds to weight and bias."""
        noise = torch.outer(self.output_noise, self.input_noise)
        return self.weight_sigma * noise, self.bias_sigma * self.output_noise

    def renew(self, rng: np.random.Generator) -> None:
        for noise in (self.input_noise, self.output_noise):
            drawn = torch.from_numpy(rng.standard_normal(len(noise)).astype(np.float32))
            noise.copy_(drawn.sign() * drawn.abs().sqrt())


def weights_of(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias as the layer uses them now."""
    return layer.noisy() if isinstance(layer, NoisyLinear) else (layer.weight, layer.bias)


def renew_noise(network: nn.Module, rng: np.random.Generator) -> None:
    """Draw the noise of all noisy layers anew; it is zero until this is first called."""
    for layer in _noisy_layers(network):
        layer.renew(rng)


@contextmanager
def quiet(network: nn.Module) -> Iterator[None]:
    """Within, the network acts without noise."""
    layers = _noisy_layers(network)
    before = [layer.quiet for layer in layers]
    for layer in layers:
        layer.quiet = True
    try:
        yield
    finally:
        for layer, was_quiet in zip(layers, before, strict=True):
            layer.quiet = was_quiet


def _noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]
