"""Robust policy optimization (Rahman and Xue 2022, arXiv:2212.07536): PPO with uniform noise added to the action mean.

The noise is added only in updates. It prevents an early collapse of the policy entropy.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmSetup
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.networks.base import Tensors


class RPOConfig(PPOConfig):
    """Options of the `rpo` algorithm: those of `ppo`, and the perturbation."""

    perturbation: float = Field(default=0.5, ge=0)
    """Half-width of the uniform noise added to each element of the action mean."""


class RPO(PPO):
    Config = RPOConfig
    actions = (ActionKind.BOUNDED, ActionKind.UNBOUNDED)

    def __init__(self, setup: AlgorithmSetup[RPOConfig]) -> None:
        super().__init__(setup)
        self._perturbation = setup.options.perturbation

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        params = self._networks.distribution_params(rows)
        noise = self._rng.uniform(-self._perturbation, self._perturbation, params.outputs.shape).astype(np.float32)
        perturbed = params._replace(outputs=params.outputs + torch.from_numpy(noise).to(params.outputs.device))
        return self._networks.distribution.terms(perturbed, rows["action"])
