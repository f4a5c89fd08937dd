"""REINFORCE (Williams 1992): steps along the policy gradient by the returns of whole episodes, less a baseline."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.a2c import policy_gradient_loss
from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import ROLES, ActorCritic, blueprints, lag_of, standardized
from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.acting import TorchPolicy
from rl4sys.networks.base import observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import Array, State


class ReinforceConfig(AlgorithmConfig):
    """Options of `reinforce`."""

    lr: Schedule = constant(1e-3)
    """Step size of Adam."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    baseline: Literal["value", "none"] = "value"
    """What returns are compared to: the critic's estimate, or nothing."""
    value_updates: int = Field(default=10, gt=0, le=10_000)
    """Gradient steps of the critic for each rollout."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for undecided policies."""
    max_grad_norm: GradNorm = 0.5
    """Gradients longer than this are shortened to it; auto: than three times what is usual."""
    normalize_advantage: bool = True
    """Scale what the policy learns from to mean 0 and deviation 1 within each rollout."""
    initial_log_std: float = 0.0
    """Continuous actions: logarithm of the first standard deviation."""


def complete_steps(last: Array, ended: Array) -> Array:
    """The steps whose episode is known to its end: those of trajectories that ended one."""
    trajectory = np.cumsum(last) - last
    complete: Array = ended[np.flatnonzero(last)][trajectory]
    return complete


class Reinforce:
    """Without a baseline, steps of episodes that go on beyond the rollout teach nothing: their return is not known.

    With one, the critic's value stands for the rest.
    """

    Config = ReinforceConfig
    actions = ALL_ACTIONS
    usual_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    blueprints = staticmethod(blueprints)

    def __init__(self, recipe: Recipe[ReinforceConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._networks = ActorCritic(recipe, self._options.initial_log_std)
        lr = self._options.lr.start
        self._actor_optimizer = make_adam([self._networks.actor_parameters()], lr, eps=1e-5)
        self._critic_optimizer = make_adam(self._networks.critic, lr, eps=1e-5)

    def make_buffer(self) -> Buffer:
        return self._recipe.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        if self._options.baseline == "none":
            # Nothing learns what an episode that was cut short would have gone on to bring.
            batch = {**batch, "terminated": batch["ended"]}
        rollout = self._networks.with_advantages(batch, self._options.gamma, gae_lambda=1.0)
        for optimizer in (self._actor_optimizer, self._critic_optimizer):
            set_lr(optimizer, self._options.lr.at(steps, self._recipe.total_timesteps))
        if self._options.baseline == "value":
            fit = self._fit_critic(rollout, steps)
            return Update(self._improve_actor(rollout, rollout["advantage"], steps) | fit | lag_of(rollout))
        complete = torch.from_numpy(complete_steps(batch["last"], batch["ended"]))
        if not complete.any():
            return Update({"policy/complete": 0.0})
        known = {name: column[complete] for name, column in rollout.items()}
        return Update(self._improve_actor(known, known["return"], steps) | lag_of(rollout))

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
