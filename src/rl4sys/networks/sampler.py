"""A network that turns noise into samples of a distribution."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export
from rl4sys.policy.program import Operation

NOISE = "~noise"
"""How the network sees the noise: as one more observation, the last by name."""


class Sampler(nn.Module):
    """Takes a network with `NOISE` among its observations; where it acts, ``noise_size`` normal numbers are drawn."""

    def __init__(self, network: nn.Module, noise_size: int) -> None:
        super().__init__()
        self.network, self.noise_size = network, noise_size

    def forward(self, observation: Tensors) -> Tensor:
        samples: Tensor = self.network(observation)
        return samples

    def export(self, prefix: str) -> Body:
        body = export(self.network, prefix)
        noise = Operation("noise", options={"size": self.noise_size, "scale": 1.0})
        joined = Operation("concat", inputs=(0, 1))
        # What was the row is now the second result, and all that follows has moved up by two.
        moved = [
            replace(operation, inputs=tuple(n if n < 0 else n + 2 for n in operation.inputs))
            for operation in body.operations
        ]
        return Body((noise, joined, *moved), body.weights)
