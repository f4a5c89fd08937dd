"""Soft actor-critic with a temperature that adapts (Haarnoja et al. 2018, arXiv:1812.05905).

Discrete actions take its exact form: expectations over all actions instead of samples (Christodoulou 2019,
arXiv:1910.07207).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.distributions import ILLEGAL
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import (
    BoxActions,
    Critics,
    Noise,
    OffPolicyConfig,
    critic_blueprint,
    fixed,
    make_replay,
    move_towards,
    td_target,
    weighted_mean,
)
from rl4sys.algorithms.schedule import Schedule, check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of, to_array
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Columns, Discrete, Spec, State

_LOG_STD_MIN, _LOG_STD_MAX = -20.0, 2.0


class SACConfig(OffPolicyConfig):
    """Options of `sac`."""

    actor_lr: Schedule | None = None
    """Step size of the actor; null for the same as lr."""
    temperature: float | None = Field(default=None, gt=0)
    """Worth of entropy beside reward; null lets it adapt until the policy has the target entropy."""
    initial_temperature: float = Field(default=1.0, gt=0)
    """Where a temperature that adapts starts."""
    temperature_lr: Schedule | None = None
    """Step size of the temperature; null for the same as lr."""
    target_entropy: float | None = None
    """Null: minus the number of elements of an action; for choices, 0.5 times the entropy of choosing at random."""
    target_update_interval: int = Field(default=1, gt=0)
    """Gradient steps between moves of the target networks."""


def squashed_sample(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """An action within -1..1 and its log-density, differentiable, from the head's mean and log_std."""
    mean, log_std = outputs.chunk(2, dim=-1)
    log_std = log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX)
    u = mean + log_std.exp() * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # ln(1 - tanh(u)^2) in a form that does not cancel.
    slope = 2 * (math.log(2) - u - nn.functional.softplus(-2 * u))
    return u.tanh(), (gaussian - slope).sum(-1)


def temperature_loss(log_temperature: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """Falls as the temperature moves to where the entropy is as wanted."""
    return (log_temperature.exp() * (entropy.detach() - target_entropy)).mean()


class _Actions(Protocol):
    """What depends on the kind of actions. Values of critics have a row for each critic."""

    usual_entropy: float
    weights: Columns
    """Of the head."""

    def blueprints(self, spec: Spec) -> Mapping[str, Blueprint]: ...

    def head(self, *, at_random: bool) -> Operation: ...

    def chosen(self, critics: Critics, rows: Tensors) -> Tensor:
        """The values of what was done."""

    def expected(self, actor: nn.Module, critics: Critics, observation: Tensors, noise: Noise) -> tuple[Tensor, Tensor]:
        """The least value that the policy expects, and its entropy: both differentiable by the actor."""


class _BoxActions(BoxActions):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.usual_entropy = -float(self.size)

    def blueprints(self, spec: Spec) -> Mapping[str, Blueprint]:
        return {
            "actor": Blueprint(spec, 2 * self.size, output_gain=0.01),
            "critic": critic_blueprint(spec, self),
        }

    def head(self, *, at_random: bool) -> Operation:
        if at_random:
            return Operation("uniform", ("low", "high"), {"parameters": 2})
        limits = {"log_std_min": _LOG_STD_MIN, "log_std_max": _LOG_STD_MAX}
        return Operation("squashed_gaussian", ("low", "high"), limits)

    def chosen(self, critics: Critics, rows: Tensors) -> Tensor:
        return critics.judge(observation_of(rows, "obs."), self.unit(rows["action"]))

    def expected(self, actor: nn.Module, critics: Critics, observation: Tensors, noise: Noise) -> tuple[Tensor, Tensor]:
        outputs = actor(observation)
        action, log_prob = squashed_sample(outputs, noise.like(outputs[:, : self.size]))
        return critics.judge(observation, action).amin(0), -log_prob


class _Choices:
    def __init__(self, choices: int) -> None:
        self._choices = choices
        self.weights: Columns = {}
        self.usual_entropy = 0.5 * math.log(choices)

    def blueprints(self, spec: Spec) -> Mapping[str, Blueprint]:
        return {"actor": Blueprint(spec, self._choices, output_gain=0.01), "critic": Blueprint(spec, self._choices)}

    def head(self, *, at_random: bool) -> Operation:
        return Operation("epsilon_greedy", options={"epsilon": 1.0}) if at_random else Operation("categorical")

    def chosen(self, critics: Critics, rows: Tensors) -> Tensor:
        values: Tensor = critics(observation_of(rows, "obs."))
        return values.gather(-1, rows["action"].expand(len(values), -1).unsqueeze(-1)).squeeze(-1)

    def expected(self, actor: nn.Module, critics: Critics, observation: Tensors, noise: Noise) -> tuple[Tensor, Tensor]:
        logits = actor(observation)
        if MASK in observation:
            logits = logits.masked_fill(~observation[MASK], ILLEGAL)
        log_probs = logits.log_softmax(-1)
        with torch.no_grad():
            values = critics(observation).amin(0)
        return (log_probs.exp() * values).sum(-1), -(log_probs.exp() * log_probs).sum(-1)


class SAC:
    Config = SACConfig
    actions = (Actions.CHOICES, Actions.BOUNDED)
    usual_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")

    def __init__(self, recipe: Recipe[SACConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options, self._actions = recipe, recipe.options, _actions(recipe.spec)
        self._device = torch.device(recipe.device)
        actor_seed, *critic_seeds = recipe.seed.generate_state(3).tolist()
        needed = self._actions.blueprints(recipe.spec)
        self._actor = build_network(recipe.network("actor"), needed["actor"], actor_seed).to(self._device)
        self._critics, self._targets = (Critics(recipe, needed["critic"], critic_seeds) for _ in range(2))
        start = self._options.temperature or self._options.initial_temperature
        self._temperature = _Temperature(math.log(start)).to(self._device)
        learnt = (self._actor, self._critics, self._temperature)
        self._optimizers = [make_adam(part, self._options.lr.start, eps=1e-8) for part in learnt]
        self._noise = Noise(recipe.seed.spawn(1)[0])
        self._updates = 0

    @staticmethod
    def blueprints(recipe: Recipe[SACConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        return _actions(recipe.spec).blueprints(recipe.spec)

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        head = self._actions.head(at_random=steps < self._options.learning_starts)
        return TorchPolicy(self._recipe.spec, self._actor, head, self._actions.weights)

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        for optimizer, rate in zip(self._optimizers, self._rates(), strict=True):
            set_lr(optimizer, rate.at(steps, self._recipe.total_timesteps))
        measured, error = self._update_critics(rows, steps)
        measured |= self._update_actor(observation_of(rows, "obs."), steps)
        self._updates += 1
        if self._updates % self._options.target_update_interval == 0:
            move_towards(self._targets, self._critics, self._options.tau)
        return Update(measured, {"priority": to_array(error)})

    def state(self) -> State:
        return {
            "actor": module_state(self._actor),
            "critics": module_state(self._critics),
            "targets": module_state(self._targets),
            "temperature": module_state(self._temperature),
            "optimizers": [optimizer_state(optimizer) for optimizer in self._optimizers],
            "rng": self._noise.rng.bit_generator.state,
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        restore_module(self._critics, state["critics"])
        restore_module(self._targets, state["targets"])
        restore_module(self._temperature, state["temperature"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            restore_optimizer(optimizer, saved)
        self._noise.rng.bit_generator.state = state["rng"]
        self._updates = int(state["updates"])

    def _rates(self) -> list[Schedule]:
        """Those of the actor, the critics and the temperature."""
        options = self._options
        return [options.actor_lr or options.lr, options.lr, options.temperature_lr or options.lr]

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Tensor]:
        target = self._target(rows)
        values = self._actions.chosen(self._critics, rows)
        error = values - target
        loss = 0.5 * weighted_mean((error**2).sum(0), rows)
        norm = descend(self._optimizers[1], self._critics, {"td": loss}, self._options.max_grad_norm, steps)
        measured = {"loss/td": loss.item(), "value/mean": values.mean().item(), "loss/gradient_norm": norm}
        return measured, error.detach().abs().mean(0)

    @torch.no_grad()
    def _target(self, rows: Tensors) -> Tensor:
        observation = observation_of(rows, "next_obs.")
        value, entropy = self._actions.expected(self._actor, self._targets, observation, self._noise)
        soft_value = value + self._temperature() * entropy
        return td_target(self._options.reward_scale * rows["reward"], rows["discount"], rows["terminated"], soft_value)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        with fixed(self._critics):
            value, entropy = self._actions.expected(self._actor, self._critics, observation, self._noise)
            loss = -(value + self._temperature().detach() * entropy).mean()
            descend(self._optimizers[0], self._actor, {"policy": loss}, self._options.max_grad_norm, steps)
        measured = {
            "loss/policy": loss.item(),
            "policy/entropy": entropy.mean().item(),
            "policy/temperature": self._temperature().item(),
        }
        if self._options.temperature is None:
            self._adapt_temperature(entropy, steps)
        return measured

    def _adapt_temperature(self, entropy: Tensor, steps: int) -> None:
        wanted = self._options.target_entropy
        target = self._actions.usual_entropy if wanted is None else wanted
        loss = temperature_loss(self._temperature.logarithm, entropy, target)
        descend(self._optimizers[2], self._temperature, {"temperature": loss}, self._options.max_grad_norm, steps)


class _Temperature(nn.Module):
    def __init__(self, logarithm: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(logarithm))

    def forward(self) -> Tensor:
        return self.logarithm.exp()


def _actions(spec: Spec) -> _Actions:
    if isinstance(spec.action, Discrete):
        return _Choices(spec.action.choices)
    return _BoxActions(spec)
