"""The value of each action as the mean of a distribution that a network describes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export, to_array
from rl4sys.policy.program import Operation


class CategoricalValues(nn.Module):
    """Takes a network of choices x atoms logits, the probabilities of the values in ``support`` (C51)."""

    support: Tensor

    def __init__(self, network: nn.Module, choices: int, support: Tensor) -> None:
        super().__init__()
        self.network, self._choices = network, choices
        self.register_buffer("support", support, persistent=False)

    def log_probs(self, observation: Tensors) -> Tensor:
        """Of each value for each action: (rows, choices, atoms)."""
        logits: Tensor = self.network(observation).unflatten(-1, (self._choices, len(self.support)))
        return logits.log_softmax(-1)

    def mean(self, log_probs: Tensor) -> Tensor:
        return log_probs.exp() @ self.support

    def forward(self, observation: Tensors) -> Tensor:
        return self.mean(self.log_probs(observation))

    def export(self, prefix: str) -> Body:
        body, name = export(self.network, prefix), f"{prefix}.support"
        expectation = Operation("expectation", (name,), {"rows": self._choices})
        return Body((*body.operations, expectation), {**body.weights, name: to_array(self.support)})


class QuantileValues(nn.Module):
    """Takes a network of choices x quantiles values, each as likely as the other (QR-DQN)."""

    def __init__(self, network: nn.Module, choices: int, quantiles: int) -> None:
        super().__init__()
        self.network, self._choices, self._quantiles = network, choices, quantiles

    def quantiles(self, observation: Tensors) -> Tensor:
        """For each action: (rows, choices, quantiles)."""
        values: Tensor = self.network(observation).unflatten(-1, (self._choices, self._quantiles))
        return values

    def forward(self, observation: Tensors) -> Tensor:
        return self.quantiles(observation).mean(-1)

    def export(self, prefix: str) -> Body:
        body, names = export(self.network, prefix), (f"{prefix}.mean.weight", f"{prefix}.mean.bias")
        mean = np.full((1, self._quantiles), 1 / self._quantiles, np.float32)
        linear = Operation("linear", names, {"rows": self._choices})
        weights = dict(zip(names, (mean, np.zeros(1, np.float32)), strict=True))
        return Body((*body.operations, linear), {**body.weights, **weights})


def even_support(low: float, high: float, atoms: int) -> Tensor:
    return torch.linspace(low, high, atoms)
