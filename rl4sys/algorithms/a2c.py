"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783): one policy gradient step per rollout.

The asynchronous form, A3C, differs only in how rollouts are collected. Here a rollout is collected by
``environment.num_envs`` environments, or by any number of live clients of one policy. Steps collected by older policy
versions get V-trace importance weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.accumulation import PartResults, Parts, scaled, split_rows
from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import (
    ROLES,
    TRUNK,
    ActorCritic,
    blueprints,
    explained_variance,
    staleness_metrics,
    standardized,
)
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.native.network import fits_core
from rl4sys.algorithms.native.policy_update import MEASURED, CorePolicyUpdate, Objective
from rl4sys.algorithms.optimization import GradNorm, descend_in_parts, make_rmsprop, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.algorithms.step_budget import StepBudget
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.spec import State


class A2CConfig(AlgorithmConfig):
    """Options of the `a2c` algorithm."""

    lr: Schedule = constant(7e-4)
    """Learning rate of RMSprop."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """GAE lambda: 0 uses the one-step TD error, 1 the full return."""
    value_coef: float = Field(default=0.5, ge=0)
    """Weight of the value loss."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    max_grad_norm: GradNorm = 0.5
    """Maximum global gradient norm; larger gradients are scaled down. "auto" uses three times the running norm."""
    normalize_advantage: bool = False
    """Normalize advantages to mean 0 and standard deviation 1 within each rollout."""
    accumulate: Parts = 1
    """Number of parts into which each rollout is split to save RAM. The gradients of all parts are summed before one
    optimizer step, so the result equals that of the whole rollout up to rounding. With a value above 1, torch computes
    the update instead of the native core."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Return the mean of -weight * advantage * log_prob; ``weight`` is the importance weight of each step."""
    return -(weight * advantage * log_prob).mean()


class A2C:
    Config = A2CConfig
    actions = ALL_ACTIONS
    default_buffer: ClassVar = {"type": "trajectory", "size": 40}
    roles = ROLES
    optional_roles = (TRUNK,)
    blueprints = staticmethod(blueprints)
    fits_core: ClassVar = True
    """True if the native core implements the update of this class. A subclass must set this attribute itself, because
    an inherited value is ignored."""

    def __init__(self, setup: AlgorithmSetup[A2CConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._networks = ActorCritic(setup, self._options.initial_log_std)
        self._optimizer = make_rmsprop(self._networks, self._options.lr.start)

    def make_buffer(self) -> Buffer:
        return self._setup.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        options = self._options
        rollout = self._networks.with_advantages(batch, options.gamma, options.gae_lambda)
        set_lr(self._optimizer, options.lr.at(steps, self._setup.total_timesteps))
        core = self._core_update()
        measured = self._learn(rollout, steps) if core is None else self._update_in_core(core, rollout, steps)
        return Update(measured | explained_variance(rollout) | staleness_metrics(rollout))

    def state(self) -> State:
        return {"networks": module_state(self._networks), "optimizer": optimizer_state(self._optimizer)}

    def restore(self, state: State) -> None:
        restore_module(self._networks, state["networks"])
        restore_optimizer(self._optimizer, state["optimizer"])

    def _core_update(self) -> CorePolicyUpdate | None:
        """Return the update prepared for the native core, or None if torch must compute the update."""
        if not fits_core(self, self._options.accumulate):
            return None
        return CorePolicyUpdate.of(self._networks, self._optimizer)

    def _update_in_core(self, core: CorePolicyUpdate, rollout: Tensors, steps: int) -> dict[str, float]:
        options, rows = self._options, len(rollout["reward"])
        objective = Objective(
            clip_ratio=math.inf,
            value_coef=2 * options.value_coef,  # The core halves squared value errors, as PPO does.
            value_clip=None,
            entropy_coef=options.entropy_coef,
            normalize_advantage=options.normalize_advantage,
            max_grad_norm=options.max_grad_norm,
            max_kl=math.inf,
            by_ratio=False,
        )
        found, not_finite = core.learn(rollout, [np.arange(rows)], rows, StepBudget(1, 1), objective)
        if not_finite is not None:
            # Repeat the update in torch, which reports the loss or gradient that is not finite.
            return self._learn(rollout, steps)
        measured = dict(zip(MEASURED, found[0].tolist(), strict=True))
        kept = ("loss/policy", "loss/value", "policy/entropy", "loss/gradient_norm")
        return {name: measured[name] for name in kept}

    def _learn(self, rollout: Tensors, steps: int) -> dict[str, float]:
        options, results = self._options, PartResults()
        if options.normalize_advantage:
            rollout = {**rollout, "advantage": standardized(rollout["advantage"])}
        losses = self._part_losses(rollout, results)
        norm = descend_in_parts(self._optimizer, self._networks, losses, options.max_grad_norm, steps)
        return {**results.means, "loss/gradient_norm": norm}

    def _part_losses(self, rollout: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        options = self._options
        for share, part in split_rows(rollout, options.accumulate):
            rows = self._networks.with_features(part)
            log_prob, entropy = self._networks.action_terms(rows)
            value = self._networks.value(observation_of(rows, "obs."))
            losses = {
                "policy": policy_gradient_loss(log_prob, rows["advantage"], rows["weight"]),
                "value": options.value_coef * torch.nn.functional.mse_loss(value, rows["return"]),
                "entropy": -options.entropy_coef * entropy.mean(),
            }
            metrics = {f"loss/{name}": losses[name].item() for name in ("policy", "value")}
            results.add(share, {**metrics, "policy/entropy": entropy.mean().item()})
            yield scaled(losses, share)
