"""Sampling network: maps noise to samples of an action distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_operations import normals
from rl4sys.policy.program import Operation
from rl4sys.spec import Columns, check_observation

NOISE = "~noise"
"""Name of the additional observation with the input noise; sorts after all other names."""


class Sampler(nn.Module):
    """Wraps a network that takes the observation `NOISE`, a vector of ``noise_size`` normal samples."""

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
        # The row joined with the noise is value 2, so the numbers of all later values shift by two.
        moved = [
            replace(operation, inputs=tuple(n if n < 0 else n + 2 for n in operation.inputs))
            for operation in body.operations
        ]
        return Body((noise, joined, *moved), body.weights)


@dataclass(frozen=True)
class SamplingPolicy(TorchPolicy):
    """Policy of a `Sampler`, which draws its input noise for each decision. The greedy form uses zero noise."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        check_observation(self.spec, observation)
        # Act row by row, because each row draws its noise and then its action.
        rows = len(next(iter(observation.values())))
        decisions = [self._act({name: c[n : n + 1] for name, c in observation.items()}, draws) for n in range(rows)]
        actions, log_probs = (np.concatenate([decision[n] for decision in decisions]) for n in (0, 1))
        return Decision(actions, log_probs, memory)

    def _act(self, row: Columns, draws: Draws) -> Decision:
        assert isinstance(self.network, Sampler)
        size = self.network.noise_size
        noise = np.zeros((1, size)) if self.is_greedy else normals(1, size, draws)
        return super().act({**row, NOISE: noise.astype(np.float32)}, {}, draws)
