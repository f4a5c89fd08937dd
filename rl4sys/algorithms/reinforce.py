"""REINFORCE (Williams 1992): policy gradient with Monte Carlo returns and an optional baseline."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.a2c import policy_gradient_loss
from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import ROLES, ActorCritic, blueprints, staleness_metrics, standardized
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.optimization import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.base import observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.spec import Array, State


class ReinforceConfig(AlgorithmConfig):
    """Options of the `reinforce` algorithm."""

    lr: Schedule = constant(1e-3)
    """Learning rate of Adam."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    baseline: Literal["value", "none"] = "value"
    """Baseline subtracted from returns: value (the critic's estimate) or none."""
    value_updates: int = Field(default=10, gt=0, le=10_000)
    """Number of critic gradient steps per rollout."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    max_grad_norm: GradNorm = 0.5
    """Maximum global gradient norm; larger gradients are scaled down. "auto" uses three times the running norm."""
    normalize_advantage: bool = True
    """Normalize the advantages (without a baseline, the returns) to mean 0 and standard deviation 1 per rollout."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""


def complete_steps(last: Array, ended: Array) -> Array:
    """Return a mask of the steps whose full return is known: steps of trajectories that end with their episode."""
    trajectory = np.cumsum(last) - last
    complete: Array = ended[np.flatnonzero(last)][trajectory]
    return complete


class Reinforce:
    """REINFORCE with Monte Carlo returns.

    Without a baseline, steps of episodes that continue beyond the rollout are skipped, because their return is unknown.
    With a baseline, the critic's value bootstraps the remaining return.
    """

    Config = ReinforceConfig
    actions = ALL_ACTIONS
    default_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    blueprints = staticmethod(blueprints)

    def __init__(self, setup: AlgorithmSetup[ReinforceConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._networks = ActorCritic(setup, self._options.initial_log_std)
        lr = self._options.lr.start
        self._actor_optimizer = make_adam([self._networks.actor_parameters()], lr, eps=1e-5)
        self._critic_optimizer = make_adam(self._networks.critic, lr, eps=1e-5)

    def make_buffer(self) -> Buffer:
        return self._setup.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        if self._options.baseline == "none":
            # Without a critic there is no value to bootstrap truncated episodes with.
            batch = {**batch, "terminated": batch["ended"]}
        rollout = self._networks.with_advantages(batch, self._options.gamma, gae_lambda=1.0)
        for optimizer in (self._actor_optimizer, self._critic_optimizer):
            set_lr(optimizer, self._options.lr.at(steps, self._setup.total_timesteps))
        if self._options.baseline == "value":
            fit = self._fit_critic(rollout, steps)
            return Update(self._improve_actor(rollout, rollout["advantage"], steps) | fit | staleness_metrics(rollout))
        complete = torch.from_numpy(complete_steps(batch["last"], batch["ended"]))
        if not complete.any():
            return Update({"policy/complete": 0.0})
        known = {name: column[complete] for name, column in rollout.items()}
        return Update(self._improve_actor(known, known["return"], steps) | staleness_metrics(rollout))

    def state(self) -> State:
        return {
            "networks": module_state(self._networks),
            "actor_optimizer": optimizer_state(self._actor_optimizer),
            "critic_optimizer": optimizer_state(self._critic_optimizer),
        }

    def restore(self, state: State) -> None:
        restore_module(self._networks, state["networks"])
        restore_optimizer(self._actor_optimizer, state["actor_optimizer"])
        restore_optimizer(self._critic_optimizer, state["critic_optimizer"])

    def _improve_actor(self, rows: dict[str, Tensor], gain: Tensor, steps: int) -> dict[str, float]:
        options = self._options
        log_prob, entropy = self._networks.action_terms(rows)
        gain = standardized(gain) if options.normalize_advantage else gain
        losses = {
            "policy": policy_gradient_loss(log_prob, gain, rows["weight"]),
            "entropy": -options.entropy_coef * entropy.mean(),
        }
        norm = descend(self._actor_optimizer, self._networks, losses, options.max_grad_norm, steps)
        return {
            "loss/policy": losses["policy"].item(),
            "policy/entropy": entropy.mean().item(),
            "loss/gradient_norm": norm,
        }

    def _fit_critic(self, rollout: dict[str, Tensor], steps: int) -> dict[str, float]:
        observation = observation_of(rollout, "obs.")
        loss = torch.zeros(())
        for _ in range(self._options.value_updates):
            loss = torch.nn.functional.mse_loss(self._networks.value(observation), rollout["return"])
            descend(self._critic_optimizer, self._networks.critic, {"value": loss}, self._options.max_grad_norm, steps)
        return {"loss/value": loss.item()}
