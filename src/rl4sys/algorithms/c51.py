"""Categorical deep Q-learning (Bellemare et al. 2017, arXiv:1707.06887): the whole distribution of the return."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rl4sys.algorithms.base import Recipe
from rl4sys.algorithms.dqn import DQN, DQNConfig, of_choice
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.distribution import CategoricalValues, even_support


class C51Config(DQNConfig):
    """Options of `c51`: those of dqn, and what values a return can have."""

    atoms: int = Field(default=51, gt=1, le=10_000)
    """Values that the distribution is over, evenly from lowest to highest."""
    lowest: float = -100.0
    """The smallest return that can be told apart."""
    highest: float = 100.0
    """The largest return that can be told apart."""

    @property
    def numbers_per_choice(self) -> int:
        return self.atoms

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError("lowest should be less than highest")
        return self


def project(values: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """A distribution over any ``values`` as one over the even ``support``: each gives to its two neighbours."""
    low, high = support[0], support[-1]
    place = (values.clamp(low, high) - low) / (support[1] - support[0])
    place = place.clamp(0, len(support) - 1)
    left = place.floor()
    share = place - left
    right = (left + 1).clamp(max=len(support) - 1)
    projected = torch.zeros_like(probability)
    projected.scatter_add_(-1, left.long(), probability * (1 - share))
    return projected.scatter_add_(-1, right.long(), probability * share)


class C51(DQN):
    Config = C51Config
    _critic: CategoricalValues
    _target: CategoricalValues

    def __init__(self, recipe: Recipe[C51Config]) -> None:
        options = recipe.options
        self._support = even_support(options.lowest, options.highest, options.atoms)
        super().__init__(recipe)

    def _valued(self, network: nn.Module) -> nn.Module:
        return CategoricalValues(network, self._choices, self._support)

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        log_probs = of_choice(self._critic.log_probs(observation_of(rows, "obs.")), rows["action"])
        cross_entropy = -(self._wanted(rows) * log_probs).sum(-1)
        return cross_entropy, self._critic.mean(log_probs), cross_entropy.detach()

    @torch.no_grad()
    def _wanted(self, rows: Tensors) -> Tensor:
        """The distribution of the return by what followed, over the support."""
        observation = observation_of(rows, "next_obs.")
        log_probs = self._target.log_probs(observation)
        choice = self._next_choice(observation, self._target.mean(log_probs))
        going_on = rows["discount"] * (~rows["terminated"]).float()
        values = rows["reward"].unsqueeze(-1) + going_on.unsqueeze(-1) * self._target.support
        return project(values, of_choice(log_probs, choice).exp(), self._target.support)
