"""Behaviour cloning: the policy becomes as likely as can be to do what was done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field

from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import Actor, blueprints
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import ReplayConfig, make_replay
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import State


class BCConfig(ReplayConfig):
    """Options of `bc`."""

    lr: Schedule = constant(1e-3)
    """Step size of Adam."""
    learning_starts: int = Field(default=0, ge=0)
    """Steps to gather before the first update."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for undecided policies."""
    initial_log_std: float = -1.0
    """Continuous actions: logarithm of the first standard deviation."""


class BC:
    Config = BCConfig
    actions = ALL_ACTIONS
    usual_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor",)

    def __init__(self, recipe: Recipe[BCConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._actor = Actor(recipe, self._options.initial_log_std)
        self._optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)

    @staticmethod
    def blueprints(recipe: Recipe[BCConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        return {"actor": blueprints(recipe)["actor"]}

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        return self._actor.policy()

    def imitation(self) -> Imitation:
        return self._actor.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._actor.device)
        set_lr(self._optimizer, self._options.lr.at(steps, self._recipe.total_timesteps))
        log_prob, entropy = self._actor.action_terms(rows)
        losses = {
            "likelihood": cloning_loss(log_prob, rows),
            "entropy": -self._options.entropy_coef * entropy.mean(),
        }
        norm = descend(self._optimizer, self._actor, losses, self._options.max_grad_norm, steps)
        with torch.no_grad():
            measured = {
                "loss/likelihood": losses["likelihood"].item(),
                "policy/entropy": entropy.mean().item(),
                "loss/gradient_norm": norm,
            }
        return Update(measured)

    def state(self) -> State:
        return {"actor": module_state(self._actor), "optimizer": optimizer_state(self._optimizer)}

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        restore_optimizer(self._optimizer, state["optimizer"])
