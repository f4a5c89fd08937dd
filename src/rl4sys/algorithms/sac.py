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
from rl4sys.algorithms.core_network import fits_core
from rl4sys.algorithms.core_replay import CoreReplay, LearntActor
from rl4sys.algorithms.distributions import ILLEGAL, categorical_terms
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.numerics import descend, make_adam, set_lr, take_step
from rl4sys.algorithms.off_policy import (
    BoxActions,
    Critics,
    LearntCritics,
    Noise,
    OffPolicyConfig,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.schedule import Schedule, check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Array, Columns, Discrete, Spec, State

_LOG_STD_MIN, _LOG_STD_MAX = -20.0, 2.0
_LEAST_SPREAD, _NEAR_BOUND = 0.05, 2.0
"""For cloning, before squashing: how much is explored at least, and what is as good as the bound."""


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


def squashed_cloning_loss(outputs: Tensor, action: Tensor) -> Tensor:
    """Of each row: its mean moves to what was done, and its spread becomes as wide as it is off.

    The likelihood of both together hardly moves the mean where it is not sure yet.
    """
    mean, log_std = outputs.chunk(2, dim=-1)
    near = mean.detach().clamp(-_NEAR_BOUND, _NEAR_BOUND)
    off = action.atanh().clamp(-_NEAR_BOUND, _NEAR_BOUND) - near
    log_std = log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX)
    spread = 0.5 * (off**2 + _LEAST_SPREAD**2) * (-2 * log_std).exp() + log_std
    return ((mean.tanh() - action) ** 2 + spread).sum(-1)


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

    def cloning_loss(self, outputs: Tensor, rows: Tensors) -> Tensor:
        """How far an actor that gives ``outputs`` is from what was done."""

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

    def cloning_loss(self, outputs: Tensor, rows: Tensors) -> Tensor:
        return squashed_cloning_loss(outputs, self.unit(rows["action"]).clamp(-1, 1)).mean()

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

    def cloning_loss(self, outputs: Tensor, rows: Tensors) -> Tensor:
        return cloning_loss(categorical_terms(outputs, rows["action"], rows.get("obs." + MASK))[0], rows)

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
    fits_core: ClassVar = True
    """The core knows all that is computed here; a class derived from this one says so itself if that is still so."""

    def __init__(self, recipe: Recipe[SACConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options, self._actions = recipe, recipe.options, _actions(recipe.spec)
        self._device = torch.device(recipe.device)
        actor_seed, *critic_seeds = recipe.seed.generate_state(3).tolist()
        needed = self._actions.blueprints(recipe.spec)
        self._actor = recipe.place(build_network(recipe.network("actor"), needed["actor"], actor_seed))
        self._critics = LearntCritics(recipe, needed["critic"], critic_seeds)
        start = self._options.temperature or self._options.initial_temperature
        self._temperature = _Temperature(math.log(start)).to(self._device)
        self._actor_optimizer, self._temperature_optimizer = (
            make_adam(part, self._options.lr.start, eps=1e-8) for part in (self._actor, self._temperature)
        )
        self._noise = Noise(recipe.seed.spawn(1)[0])
        self._core: CoreReplay | None = None
        self._updates = 0

    @staticmethod
    def blueprints(recipe: Recipe[SACConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        return _actions(recipe.spec).blueprints(recipe.spec)

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        head = self._actions.head(at_random=acts_at_random(self._recipe, self._options, steps))
        return TorchPolicy(self._recipe.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._cloning_loss)

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        core = self._in_core()
        if core is not None:
            measured, error = self._learn_in_core(core, rows, steps)
        else:
            measured, error = self._update_critics(rows, steps)
            measured |= self._update_actor(observation_of(rows, "obs."), steps)
        self._updates += 1
        if self._updates % self._options.target_update_interval == 0:
            self._critics.move_target()
        return Update(measured, {"priority": error})

    def state(self) -> State:
        return {
            "actor": module_state(self._actor),
            "critics": self._critics.state(),
            "temperature": module_state(self._temperature),
            "actor_optimizer": optimizer_state(self._actor_optimizer),
            "temperature_optimizer": optimizer_state(self._temperature_optimizer),
            "rng": self._noise.rng.bit_generator.state,
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        self._critics.restore(state["critics"])
        restore_module(self._temperature, state["temperature"])
        restore_optimizer(self._actor_optimizer, state["actor_optimizer"])
        restore_optimizer(self._temperature_optimizer, state["temperature_optimizer"])
        self._noise.rng.bit_generator.state = state["rng"]
        self._updates = int(state["updates"])

    def _cloning_loss(self, rows: Tensors) -> Tensor:
        return self._actions.cloning_loss(self._actor(observation_of(rows, "obs.")), rows)

    def _rate(self, own: Schedule | None, steps: int) -> float:
        return (own or self._options.lr).at(steps, self._recipe.total_timesteps)

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        with torch.no_grad():
            observation = observation_of(rows, "next_obs.")
            value, entropy = self._actions.expected(self._actor, self._critics.target, observation, self._noise)
            soft_value = value + self._temperature() * entropy
        values = self._actions.chosen(self._critics.online, rows)
        return self._critics.learn(rows, values, soft_value, self._rate(None, steps), steps)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        set_lr(self._actor_optimizer, self._rate(self._options.actor_lr, steps))
        with self._critics.fixed():
            value, entropy = self._actions.expected(self._actor, self._critics.online, observation, self._noise)
            loss = -(value + self._temperature().detach() * entropy).mean()
            descend(self._actor_optimizer, self._actor, {"policy": loss}, self._options.max_grad_norm, steps)
        measured = {
            "loss/policy": loss.item(),
            "policy/entropy": entropy.mean().item(),
            "policy/temperature": self._temperature().item(),
        }
        if self._options.temperature is None:
            self._adapt_temperature(entropy, steps)
        return measured

    def _in_core(self) -> CoreReplay | None:
        """The core, where it knows all that is computed here."""
        actions = self._actions
        if not fits_core(self) or not isinstance(actions, _BoxActions):
            return None
        if self._core is None or not self._core.current:
            bounds = (_LOG_STD_MIN, _LOG_STD_MAX)
            actor = LearntActor(self._actor, self._actor_optimizer, actions.size, log_std_bounds=bounds)
            self._core = CoreReplay.of(actor, self._critics, self._options.max_grad_norm)
        return self._core

    def _learn_in_core(self, core: CoreReplay, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        assert isinstance(self._actions, _BoxActions)
        replayed = core.take(rows, self._actions.unit, self._options.reward_scale)
        shape, temperature = (len(replayed), self._actions.size), self._temperature().item()
        next_value = core.next_values(replayed, self._noise.of(*shape), temperature)
        measured, error = core.learn_critics(replayed, next_value, self._rate(None, steps))
        if not math.isfinite(measured["loss/td"]):
            # Torch says which loss or gradient it is.
            measured, error = self._update_critics(rows, steps)
        rate = self._rate(self._options.actor_lr, steps)
        loss, entropy = core.learn_actor(replayed, self._noise.of(*shape), rate, temperature, by_least=True)
        if not math.isfinite(loss):
            return measured | self._update_actor(observation_of(rows, "obs."), steps), error
        if self._options.temperature is None:
            self._adapt_temperature_along(temperature * (entropy - self._target_entropy), steps)
        return measured | {"loss/policy": loss, "policy/entropy": entropy, "policy/temperature": temperature}, error

    @property
    def _target_entropy(self) -> float:
        wanted = self._options.target_entropy
        return self._actions.usual_entropy if wanted is None else wanted

    def _adapt_temperature_along(self, gradient: float, steps: int) -> None:
        """As below, where the gradient of the loss is known."""
        self._temperature.logarithm.grad = torch.tensor(gradient)
        set_lr(self._temperature_optimizer, self._rate(self._options.temperature_lr, steps))
        take_step(self._temperature_optimizer, self._options.max_grad_norm)

    def _adapt_temperature(self, entropy: Tensor, steps: int) -> None:
        loss = temperature_loss(self._temperature.logarithm, entropy, self._target_entropy)
        set_lr(self._temperature_optimizer, self._rate(self._options.temperature_lr, steps))
        descend(
            self._temperature_optimizer, self._temperature, {"temperature": loss}, self._options.max_grad_norm, steps
        )


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
