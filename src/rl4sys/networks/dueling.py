"""A value and an advantage per action, joined to action values (Wang et al. 2016, equation 9)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl4sys.networks.base import Body, Tensors, export, to_array
from rl4sys.policy.program import Operation


class Dueling(nn.Module):
    """Takes a network of 1 + choices outputs; the joining is linear, so it exports as one more layer."""

    _join: Tensor

    def __init__(self, network: nn.Module, choices: int) -> None:
        super().__init__()
        self.network = network
        centred = torch.eye(choices) - 1 / choices
        self.register_buffer("_join", torch.cat([torch.ones(choices, 1), centred], dim=1), persistent=False)

    def forward(self, observation: Tensors) -> Tensor:
        value_and_advantages: Tensor = self.network(observation)
        return value_and_advantages @ self._join.T

    def export(self, prefix: str) -> Body:
        body = export(self.network, prefix)
        names = (f"{prefix}.join.weight", f"{prefix}.join.bias")
        weights = {names[0]: to_array(self._join), names[1]: to_array(torch.zeros(len(self._join)))}
        return Body((*body.operations, Operation("linear", names)), {**body.weights, **weights})
