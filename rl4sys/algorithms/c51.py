"""Categorical DQN, C51 (Bellemare et al. 2017, arXiv:1707.06887): learns the return distribution."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmSetup
from rl4sys.algorithms.dqn import DQN, DQNConfig, values_of_action
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.distributional import CategoricalValues, even_support


class C51Config(DQNConfig):
    """Options of the `c51` algorithm: those of `dqn`, and the support of the return distribution."""

    atoms: int = Field(default=51, gt=1, le=10_000)
    """Number of atoms of the return distribution, evenly spaced from `lowest` to `highest`."""
    lowest: float = -100.0
    """Lowest atom of the support; smaller returns are clipped to it."""
    highest: float = 100.0
    """Highest atom of the support; larger returns are clipped to it."""

    @property
    def outputs_per_action(self) -> int:
        return self.atoms

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest is {self.lowest:g}; expected a value less than highest, {self.highest:g}")
        return self


def project(values: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """Project a distribution over ``values`` onto ``support``: split each probability between the two nearest atoms."""
    low, high = support[0], support[-1]
    position = (values.clamp(low, high) - low) / (support[1] - support[0])
    position = position.clamp(0, len(support) - 1)
    left = position.floor()
    share = position - left
    right = (left + 1).clamp(max=len(support) - 1)
    projected = torch.zeros_like(probability)
    projected.scatter_add_(-1, left.long(), probability * (1 - share))
    return projected.scatter_add_(-1, right.long(), probability * share)


class C51(DQN):
    Config = C51Config
    _critic: CategoricalValues
    _target: CategoricalValues

    def __init__(self, setup: AlgorithmSetup[C51Config]) -> None:
        options = setup.options
        self._support = even_support(options.lowest, options.highest, options.atoms)
        super().__init__(setup)

    def _with_value_output(self, network: nn.Module) -> nn.Module:
        return CategoricalValues(network, self._action_count, self._support)

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        log_probs = values_of_action(self._critic.log_probs(observation_of(rows, "obs.")), rows["action"])
        cross_entropy = -(self._target_distribution(rows) * log_probs).sum(-1)
        return cross_entropy, self._critic.mean(log_probs), cross_entropy.detach()

    @torch.no_grad()
    def _target_distribution(self, rows: Tensors) -> Tensor:
        """Return the target distribution of the return, projected onto the support."""
        observation = observation_of(rows, "next_obs.")
        log_probs = self._target.log_probs(observation)
        action = self._next_action(observation, self._target.mean(log_probs))
        discount = rows["discount"] * (~rows["terminated"]).float()
        values = rows["reward"].unsqueeze(-1) + discount.unsqueeze(-1) * self._target.support
        return project(values, values_of_action(log_probs, action).exp(), self._target.support)
