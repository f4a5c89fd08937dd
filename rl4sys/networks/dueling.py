"""Dueling network: a state value and action advantages, combined to Q-values (Wang et al. 2016, equation 9)."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export
from rl4sys.policy.program import Operation


class Dueling(nn.Module):
    """Wraps a network with (1 + actions) x ``atoms`` outputs: the state value, then the advantage of each action.

    The combination is linear, so the export folds it into the network's last layer.
    """

    def __init__(self, network: nn.Module, actions: int, atoms: int = 1) -> None:
        super().__init__()
        self.network, self._actions, self._atoms = network, actions, atoms

    def forward(self, observation: Tensors) -> Tensor:
        parts = self.network(observation).unflatten(-1, (1 + self._actions, self._atoms))
        value, advantage = parts[..., :1, :], parts[..., 1:, :]
        joined: Tensor = value + advantage - advantage.mean(-2, keepdim=True)
        return joined.flatten(-2)

    def export(self, prefix: str) -> Body:
        body = export(self.network, prefix)
        *before, last = body.operations
        centered = np.eye(self._actions) - 1 / self._actions
        join = np.kron(np.hstack([np.ones((self._actions, 1)), centered]), np.eye(self._atoms))
        if last.name not in ("linear", "noisy_linear") or last.options:
            names = (f"{prefix}.join.weight", f"{prefix}.join.bias")
            weights = dict(zip(names, (join.astype(np.float32), np.zeros(len(join), np.float32)), strict=True))
            return Body((*body.operations, Operation("linear", names)), {**body.weights, **weights})
        folded = {name: (join @ body.weights[name]).astype(np.float32) for name in last.weights}
        return Body((*before, last), {**body.weights, **folded})
