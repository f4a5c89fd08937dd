"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169): better than what was done, from nothing but that.

Values are learnt without asking what an action that was never taken would bring: the state's value is a high expectile
of the values of actions that were. The policy clones these actions, the better the more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.actor_critic import Actor, blueprints
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.dqn import of_choice
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import (
    BoxActions,
    Critics,
    JudgedActions,
    LearntCritics,
    OffPolicyConfig,
    critic_blueprint,
    make_replay,
    weighted_mean,
)
from rl4sys.algorithms.schedule import check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import Array, Discrete, MultiDiscrete, Spec, State, numbers_of

_MOST_WEIGHT = 100.0


class IQLConfig(OffPolicyConfig):
    """Options of `iql`."""

    learning_starts: int = Field(default=0, ge=0)
    """Steps to gather before the first update."""
    expectile: float = Field(default=0.7, gt=0, lt=1)
    """How optimistic values are: 0.5 is the mean of what was done, towards 1 the best of it."""
    temperature: float = Field(default=3.0, ge=0)
    """How much better actions are preferred: 0 clones all alike."""
    initial_log_std: float = -1.0
    """Continuous actions: logarithm of the first standard deviation."""


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Squares of ``target - estimate``, those above zero weighing ``expectile``, those below the rest."""
    return torch.where(error > 0, expectile, 1 - expectile) * error**2


def preference(advantage: Tensor, temperature: float) -> Tensor:
    """How much an action is cloned."""
    return (temperature * advantage).exp().clamp(max=_MOST_WEIGHT)


class IQL:
    Config = IQLConfig
    actions = (Actions.CHOICES, Actions.SEVERAL, Actions.BOUNDED)
    usual_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic", "value")

    def __init__(self, recipe: Recipe[IQLConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._judged = _judged_actions(recipe.spec)
        needed, (_, value_seed, *critic_seeds) = self.blueprints(recipe), recipe.seed.generate_state(4).tolist()
        self._actor = Actor(recipe, self._options.initial_log_std)
        self._value = recipe.place(build_network(recipe.network("value"), needed["value"], value_seed))
        self._critics = LearntCritics(recipe, needed["critic"], critic_seeds)
        learnt = (self._actor, self._value)
        self._optimizers = [make_adam(part, self._options.lr.start, eps=1e-8) for part in learnt]

    @staticmethod
    def blueprints(recipe: Recipe[IQLConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        judged, common = _judged_actions(recipe.spec), blueprints(recipe)
        critic = critic_blueprint(recipe.spec, judged) if judged else Blueprint(recipe.spec, common["actor"].outputs)
        return {"actor": common["actor"], "critic": critic, "value": common["critic"]}

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        return self._actor.policy()

    def imitation(self) -> Imitation:
        return self._actor.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._actor.device)
        for optimizer in self._optimizers:
            set_lr(optimizer, self._options.lr.at(steps, self._recipe.total_timesteps))
        with torch.no_grad():
            judged = self._of_taken(self._critics.target, rows).amin(0)
        advantage, measured = self._update_value(rows, judged, steps)
        measured |= self._update_actor(rows, advantage, steps)
        of_critics, error = self._update_critics(rows, steps)
        self._critics.move_target()
        return Update(of_critics | measured, {"priority": error})

    def state(self) -> State:
        return {
            "actor": module_state(self._actor),
            "value": module_state(self._value),
            "critics": self._critics.state(),
            "optimizers": [optimizer_state(optimizer) for optimizer in self._optimizers],
        }

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        restore_module(self._value, state["value"])
        self._critics.restore(state["critics"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            restore_optimizer(optimizer, saved)

    def _of_taken(self, critics: Critics, rows: Tensors) -> Tensor:
        """Values of what was done; a row for each critic."""
        observation = observation_of(rows, "obs.")
        if self._judged:
            return critics.judge(observation, self._judged.unit(rows["action"]))
        return torch.stack([of_choice(values, rows["action"]) for values in critics(observation)])

    def _update_value(self, rows: Tensors, judged: Tensor, steps: int) -> tuple[Tensor, dict[str, float]]:
        value = self._value(observation_of(rows, "obs.")).squeeze(-1)
        loss = weighted_mean(expectile_loss(judged - value, self._options.expectile), rows)
        descend(self._optimizers[1], self._value, {"value": loss}, self._options.max_grad_norm, steps)
        return (judged - value).detach(), {"loss/value": loss.item(), "value/mean": value.mean().item()}

    def _update_actor(self, rows: Tensors, advantage: Tensor, steps: int) -> dict[str, float]:
        log_prob, entropy = self._actor.action_terms(rows)
        loss = -(preference(advantage, self._options.temperature) * log_prob).mean()
        descend(self._optimizers[0], self._actor, {"policy": loss}, self._options.max_grad_norm, steps)
        return {"loss/policy": loss.item(), "policy/entropy": entropy.mean().item()}

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        with torch.no_grad():
            next_value = self._value(observation_of(rows, "next_obs.")).squeeze(-1)
        rate = self._options.lr.at(steps, self._recipe.total_timesteps)
        return self._critics.learn(rows, self._of_taken(self._critics.online, rows), next_value, rate, steps)


class _SeveralChoices:
    """A number for each choice of all parts: 1 for those made, 0 for the others."""

    def __init__(self, space: MultiDiscrete) -> None:
        self._parts, self.size = space.parts, numbers_of(space)

    def unit(self, action: Tensor) -> Tensor:
        made = [torch.nn.functional.one_hot(part, n) for part, n in zip(action.unbind(1), self._parts, strict=True)]
        return torch.cat(made, dim=1).float()


def _judged_actions(spec: Spec) -> JudgedActions | None:
    """None where critics judge all actions at once."""
    if isinstance(spec.action, Discrete):
        return None
    return _SeveralChoices(spec.action) if isinstance(spec.action, MultiDiscrete) else BoxActions(spec)
