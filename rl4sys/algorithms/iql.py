"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169): offline learning from recorded actions only.

The state value is a high expectile of the Q-values of recorded actions, so the Q-values of other actions are
never used. The policy clones the recorded actions, weighted by their advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.accumulation import PartResults, scaled, split_rows
from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.actor_critic import Actor, blueprints
from rl4sys.algorithms.base import AlgorithmSetup, Update
from rl4sys.algorithms.dqn import values_of_action
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.off_policy import (
    ActionEncoder,
    BoxActions,
    CriticLearner,
    Critics,
    OffPolicyConfig,
    critic_blueprint,
    make_replay,
    weighted_mean,
)
from rl4sys.algorithms.optimization import descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.spec import Array, Discrete, MultiDiscrete, Spec, State, encoded_size

_MAX_WEIGHT = 100.0


class IQLConfig(OffPolicyConfig):
    """Options of the `iql` algorithm."""

    learning_starts: int = Field(default=0, ge=0)
    """Number of environment steps before the first update."""
    expectile: float = Field(default=0.7, gt=0, lt=1)
    """Expectile of the value regression: 0.5 estimates the mean Q-value of recorded actions, values near
    1 estimate their maximum."""
    temperature: float = Field(default=3.0, ge=0)
    """Inverse temperature of the advantage weights; 0 weights all recorded actions equally."""
    initial_log_std: float = -1.0
    """Initial log standard deviation of continuous actions."""


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Return the squared error, weighted by ``expectile`` if ``error`` is positive, else by ``1 - expectile``."""
    return torch.where(error > 0, expectile, 1 - expectile) * error**2


def advantage_weight(advantage: Tensor, temperature: float) -> Tensor:
    """Return the weight of each cloned action: exp(temperature * advantage), at most 100."""
    return (temperature * advantage).exp().clamp(max=_MAX_WEIGHT)


class IQL:
    Config = IQLConfig
    actions = (ActionKind.DISCRETE, ActionKind.MULTI_DISCRETE, ActionKind.BOUNDED)
    default_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic", "value")

    def __init__(self, setup: AlgorithmSetup[IQLConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._encoder = _action_encoder(setup.spec)
        needed, (_, value_seed, *critic_seeds) = self.blueprints(setup), setup.seed.generate_state(4).tolist()
        self._actor = Actor(setup, self._options.initial_log_std)
        self._value = setup.place(build_network(setup.network("value"), needed["value"], value_seed))
        self._critics = CriticLearner(setup, needed["critic"], critic_seeds)
        networks = (self._actor, self._value)
        self._optimizers = [make_adam(network, self._options.lr.start, eps=1e-8) for network in networks]

    @staticmethod
    def blueprints(setup: AlgorithmSetup[IQLConfig]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        encoder, common = _action_encoder(setup.spec), blueprints(setup)
        critic = critic_blueprint(setup.spec, encoder) if encoder else Blueprint(setup.spec, common["actor"].outputs)
        return {"actor": common["actor"], "critic": critic, "value": common["critic"]}

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        return self._actor.policy()

    def imitation(self) -> Imitation:
        return self._actor.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._actor.device)
        for optimizer in self._optimizers:
            set_lr(optimizer, self._options.lr.at(steps, self._setup.total_timesteps))
        with torch.no_grad():
            q_value = self._q_values(self._critics.target, rows).amin(0)
        advantage, measured = self._update_value(rows, q_value, steps)
        measured |= self._update_actor(rows, advantage, steps)
        critic_metrics, error = self._update_critics(rows, steps)
        self._critics.update_target()
        return Update(critic_metrics | measured, {"priority": error})

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

    def _q_values(self, critics: Critics, rows: Tensors) -> Tensor:
        """Return the Q-values of the recorded actions; one row per critic."""
        observation = observation_of(rows, "obs.")
        if self._encoder:
            return critics.action_values(observation, self._encoder.encode(rows["action"]))
        return torch.stack([values_of_action(values, rows["action"]) for values in critics(observation)])

    def _update_value(self, rows: Tensors, q_value: Tensor, steps: int) -> tuple[Tensor, dict[str, float]]:
        results = PartResults()
        losses = self._value_losses({**rows, "q_value": q_value}, results)
        descend_in_parts(self._optimizers[1], self._value, losses, self._options.max_grad_norm, steps)
        return results.column("advantage"), results.means

    def _value_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            value = self._value(observation_of(part, "obs.")).squeeze(-1)
            advantage = part["q_value"] - value
            loss = weighted_mean(expectile_loss(advantage, self._options.expectile), part)
            metrics = {"loss/value": loss.item(), "value/mean": value.mean().item()}
            results.add(share, metrics, advantage=advantage)
            yield scaled({"value": loss}, share)

    def _update_actor(self, rows: Tensors, advantage: Tensor, steps: int) -> dict[str, float]:
        results = PartResults()
        losses = self._policy_losses({**rows, "advantage": advantage}, results)
        descend_in_parts(self._optimizers[0], self._actor, losses, self._options.max_grad_norm, steps)
        return results.means

    def _policy_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            log_prob, entropy = self._actor.action_terms(part)
            loss = -(advantage_weight(part["advantage"], self._options.temperature) * log_prob).mean()
            results.add(share, {"loss/policy": loss.item(), "policy/entropy": entropy.mean().item()})
            yield scaled({"policy": loss}, share)

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        rate = self._options.lr.at(steps, self._setup.total_timesteps)
        return self._critics.learn(rows, self._values, rate, steps)

    def _values(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Return the Q-values of the recorded actions (one row per critic), and the values of the next observations."""
        with torch.no_grad():
            next_value = self._value(observation_of(rows, "next_obs.")).squeeze(-1)
        return self._q_values(self._critics.online, rows), next_value


class _OneHotActions:
    """Encoder of MultiDiscrete actions: concatenated one-hot encodings of all dimensions."""

    def __init__(self, space: MultiDiscrete) -> None:
        self._parts, self.size = space.parts, encoded_size(space)

    def encode(self, action: Tensor) -> Tensor:
        encoded = [torch.nn.functional.one_hot(part, n) for part, n in zip(action.unbind(1), self._parts, strict=True)]
        return torch.cat(encoded, dim=1).float()


def _action_encoder(spec: Spec) -> ActionEncoder | None:
    """Return the encoder of actions for critic inputs.

    Returns None for discrete actions, because a critic then outputs the Q-values of all actions.
    """
    if isinstance(spec.action, Discrete):
        return None
    return _OneHotActions(spec.action) if isinstance(spec.action, MultiDiscrete) else BoxActions(spec)
