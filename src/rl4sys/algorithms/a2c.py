"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783): one step along the policy gradient for each rollout.

Its asynchronous form, A3C, differs in who gathers the rollouts. Here that is ``environment.num_envs`` environments, or
any number of live clients that name one policy; what older versions chose among it is weighted as V-trace does.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import ROLES, TRUNK, ActorCritic, blueprints, fit_of_critic, lag_of, standardized
from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.core_network import fits_core
from rl4sys.algorithms.core_update import MEASURED, CoreUpdate, Objective
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import GradNorm, descend, make_rmsprop, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.acting import TorchPolicy
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import State


class A2CConfig(AlgorithmConfig):
    """Options of `a2c`."""

    lr: Schedule = constant(7e-4)
    """Step size of RMSprop."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """Advantage estimates: 0 trusts the critic alone, 1 the rewards alone."""
    value_coef: float = Field(default=0.5, ge=0)
    """Weight of the critic's loss."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for undecided policies."""
    max_grad_norm: GradNorm = 0.5
    """Gradients longer than this are shortened to it; auto: than three times what is usual."""
    normalize_advantage: bool = False
    """Scale advantages to mean 0 and deviation 1 within each rollout."""
    initial_log_std: float = 0.0
    """Continuous actions: logarithm of the first standard deviation."""


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Its gradient is the policy gradient, negated; ``weight`` is that of each step."""
    return -(weight * advantage * log_prob).mean()


class A2C:
    Config = A2CConfig
    actions = ALL_ACTIONS
    usual_buffer: ClassVar = {"type": "trajectory", "size": 40}
    roles = ROLES
    optional_roles = (TRUNK,)
    blueprints = staticmethod(blueprints)
    fits_core: ClassVar = True
    """The core knows all that is computed here; a class derived from this one says so itself if that is still so."""

    def __init__(self, recipe: Recipe[A2CConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._networks = ActorCritic(recipe, self._options.initial_log_std)
        self._optimizer = make_rmsprop(self._networks, self._options.lr.start)

    def make_buffer(self) -> Buffer:
        return self._recipe.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        options = self._options
        rollout = self._networks.with_advantages(batch, options.gamma, options.gae_lambda)
        set_lr(self._optimizer, options.lr.at(steps, self._recipe.total_timesteps))
        core = CoreUpdate.of(self._networks, self._optimizer) if fits_core(self) else None
        measured = self._learn(rollout, steps) if core is None else self._learn_in_core(core, rollout, steps)
        return Update(measured | fit_of_critic(rollout) | lag_of(rollout))

    def state(self) -> State:
        return {"networks": module_state(self._networks), "optimizer": optimizer_state(self._optimizer)}

    def restore(self, state: State) -> None:
        restore_module(self._networks, state["networks"])
        restore_optimizer(self._optimizer, state["optimizer"])

    def _learn_in_core(self, core: CoreUpdate, rollout: Tensors, steps: int) -> dict[str, float]:
        options, rows = self._options, len(rollout["reward"])
        objective = Objective(
            clip_ratio=math.inf,
            value_coef=2 * options.value_coef,  # PPO halves the squares.
            value_clip=None,
            entropy_coef=options.entropy_coef,
            normalize_advantage=options.normalize_advantage,
            max_grad_norm=options.max_grad_norm,
            most_kl=math.inf,
            by_ratio=False,
        )
        found, spoilt = core.learn(rollout, [np.arange(rows)], rows, None, objective)
        if spoilt is not None:
            # Torch says which loss or gradient it is.
            return self._learn(rollout, steps)
        measured = dict(zip(MEASURED, found[0].tolist(), strict=True))
        kept = ("loss/policy", "loss/value", "policy/entropy", "loss/gradient_norm")
        return {name: measured[name] for name in kept}

    def _learn(self, rollout: Tensors, steps: int) -> dict[str, float]:
        options, rows = self._options, self._networks.with_features(rollout)
        log_prob, entropy = self._networks.action_terms(rows)
        advantage = standardized(rollout["advantage"]) if options.normalize_advantage else rollout["advantage"]
        value = self._networks.value(observation_of(rows, "obs."))
        losses = {
            "policy": policy_gradient_loss(log_prob, advantage, rollout["weight"]),
            "value": options.value_coef * torch.nn.functional.mse_loss(value, rollout["return"]),
            "entropy": -options.entropy_coef * entropy.mean(),
        }
        norm = descend(self._optimizer, self._networks, losses, options.max_grad_norm, steps)
        return {
            "loss/policy": losses["policy"].item(),
            "loss/value": losses["value"].item(),
            "policy/entropy": entropy.mean().item(),
            "loss/gradient_norm": norm,
        }
