"""A network that turns noise into samples of a distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from rl4sys.networks.acting import TorchPolicy
from rl4sys.networks.base import Body, Tensors, export
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_body import normals
from rl4sys.policy.program import Operation
from rl4sys.spec import Columns

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


@dataclass(frozen=True)
class SamplingPolicy(TorchPolicy):
    """Draws the sampler's noise too; where it is greedy, none, which gives a sample as well."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        # Row by row, since a row's noise and its head's draws follow each other.
        rows = len(next(iter(observation.values())))
        decisions = [self._act({name: c[n : n + 1] for name, c in observation.items()}, draws) for n in range(rows)]
        actions, log_probs = (np.concatenate([decision[n] for decision in decisions]) for n in (0, 1))
        return Decision(actions, log_probs, memory)

    def _act(self, row: Columns, draws: Draws) -> Decision:
        assert isinstance(self.network, Sampler)
        size = self.network.noise_size
        noise = np.zeros((1, size)) if self.is_greedy else normals(1, size, draws)
        return super().act({**row, NOISE: noise.astype(np.float32)}, {}, draws)
