"""Distributional critics: action values as means of return distributions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export, to_array
from rl4sys.policy.program import Operation


class CategoricalValues(nn.Module):
    """Critic of C51: for each action, a categorical distribution over the returns in ``support`` (the atoms)."""

    support: Tensor

    def __init__(self, network: nn.Module, actions: int, support: Tensor) -> None:
        super().__init__()
        self.network, self._actions = network, actions
        self.register_buffer("support", support, persistent=False)

    def log_probs(self, observation: Tensors) -> Tensor:
        """Return the log-probability of each atom for each action: (rows, actions, atoms)."""
        logits: Tensor = self.network(observation).unflatten(-1, (self._actions, len(self.support)))
        return logits.log_softmax(-1)

    def mean(self, log_probs: Tensor) -> Tensor:
        return log_probs.exp() @ self.support

    def forward(self, observation: Tensors) -> Tensor:
        return self.mean(self.log_probs(observation))

    def export(self, prefix: str) -> Body:
        body, name = export(self.network, prefix), f"{prefix}.support"
        expectation = Operation("expectation", (name,), {"rows": self._actions})
        return Body((*body.operations, expectation), {**body.weights, name: to_array(self.support)})


class QuantileValues(nn.Module):
    """Critic of QR-DQN: for each action, quantiles of the return with equal probability."""

    def __init__(self, network: nn.Module, actions: int, quantiles: int) -> None:
        super().__init__()
        self.network, self._actions, self._quantiles = network, actions, quantiles

    def quantiles(self, observation: Tensors) -> Tensor:
        """Return the quantiles of the return for each action: (rows, actions, quantiles)."""
        values: Tensor = self.network(observation).unflatten(-1, (self._actions, self._quantiles))
        return values

    def forward(self, observation: Tensors) -> Tensor:
        return self.quantiles(observation).mean(-1)

    def export(self, prefix: str) -> Body:
        body, names = export(self.network, prefix), (f"{prefix}.mean.weight", f"{prefix}.mean.bias")
        mean = np.full((1, self._quantiles), 1 / self._quantiles, np.float32)
        linear = Operation("linear", names, {"rows": self._actions})
        weights = dict(zip(names, (mean, np.zeros(1, np.float32)), strict=True))
        return Body((*body.operations, linear), {**body.weights, **weights})


def even_support(low: float, high: float, atoms: int) -> Tensor:
    return torch.linspace(low, high, atoms)
