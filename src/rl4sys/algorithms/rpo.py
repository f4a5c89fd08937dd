"""Robust policy optimisation (Rahman and Xue 2022, arXiv:2212.07536): PPO that learns as if it had seen less clearly.

In updates the mean of a continuous action is moved at random, which keeps the policy from becoming sure too soon.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.base import Recipe
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.networks.base import Tensors


class RPOConfig(PPOConfig):
    """Options of `rpo`: those of ppo, and one more."""

    perturbation: float = Field(default=0.5, ge=0)
    """How far, at most, the mean is moved in each of its elements."""


class RPO(PPO):
    Config = RPOConfig
    actions = (Actions.BOUNDED, Actions.UNBOUNDED)

    def __init__(self, recipe: Recipe[RPOConfig]) -> None:
        super().__init__(recipe)
        self._perturbation = recipe.options.perturbation

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        law = self._networks.law(rows)
        moved = self._rng.uniform(-self._perturbation, self._perturbation, law.outputs.shape).astype(np.float32)
        blurred = law._replace(outputs=law.outputs + torch.from_numpy(moved).to(law.outputs.device))
        return self._networks.distribution.terms(blurred, rows["action"])
