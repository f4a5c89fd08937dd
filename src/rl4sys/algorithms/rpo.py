"""Robust policy optimisation (Rahman and Xue 2022, arXiv:2212.07536): PPO that learns as if it had seen less clearly.

In updates the mean of a continuous action is moved at random, which keeps the policy from becoming sure too soon.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actor_critic import gaussian_terms
from rl4sys.algorithms.base import Recipe
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.errors import ConfigError
from rl4sys.networks.base import Tensors
from rl4sys.spec import Discrete


class RPOConfig(PPOConfig):
    """Options of `rpo`: those of ppo, and one more."""

    perturbation: float = Field(default=0.5, ge=0)
    """How far, at most, the mean is moved in each of its elements."""


class RPO(PPO):
    Config = RPOConfig

    def __init__(self, recipe: Recipe[RPOConfig]) -> None:
        if isinstance(recipe.spec.action, Discrete):
            raise ConfigError("rpo needs continuous actions, and this environment has discrete ones; use ppo")
        super().__init__(recipe)
        self._perturbation = recipe.options.perturbation

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        mean = self._networks.outputs(rows)
        moved = self._rng.uniform(-self._perturbation, self._perturbation, mean.shape).astype(np.float32)
        mean = mean + torch.from_numpy(moved).to(mean.device)
        return gaussian_terms(mean, self._networks.log_std, rows["action"].reshape(len(mean), -1))
