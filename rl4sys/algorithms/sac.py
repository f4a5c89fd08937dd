"""Soft actor-critic with automatic temperature tuning (Haarnoja et al. 2018, arXiv:1812.05905).

Discrete actions use exact expectations over all actions in place of samples (Christodoulou 2019, arXiv:1910.07207).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.accumulation import PartResults, scaled, split_rows
from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmSetup, Update
from rl4sys.algorithms.distributions import ILLEGAL, categorical_terms
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.native.network import fits_core
from rl4sys.algorithms.native.replay_update import CoreReplayUpdate, TrainedActor
from rl4sys.algorithms.off_policy import (
    BoxActions,
    CriticLearner,
    Critics,
    Noise,
    OffPolicyConfig,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.optimization import descend, descend_in_parts, make_adam, set_lr, take_step
from rl4sys.algorithms.schedule import Schedule, check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Array, Columns, Discrete, Spec, State

_LOG_STD_MIN, _LOG_STD_MAX = -20.0, 2.0
_MIN_STD, _ATANH_LIMIT = 0.05, 2.0
"""Constants of the behavior cloning loss, before tanh: minimum standard deviation, clip range of means and actions."""


class SACConfig(OffPolicyConfig):
    """Options of the `sac` algorithm."""

    actor_lr: Schedule | None = None
    """Learning rate of the actor; null uses lr."""
    temperature: float | None = Field(default=None, gt=0)
    """Fixed entropy temperature alpha; null tunes it automatically towards target_entropy."""
    initial_temperature: float = Field(default=1.0, gt=0)
    """Initial value of the automatically tuned temperature."""
    temperature_lr: Schedule | None = None
    """Learning rate of the temperature; null uses lr."""
    target_entropy: float | None = None
    """Target policy entropy; null uses minus the action dimension, or half the maximum entropy for discrete actions."""
    target_update_interval: int = Field(default=1, gt=0)
    """Number of gradient steps between target network updates."""


def squashed_sample(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a reparameterized action in -1..1 and its log-density; ``outputs`` holds mean and log_std."""
    mean, log_std = outputs.chunk(2, dim=-1)
    log_std = log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX)
    u = mean + log_std.exp() * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # ln(1 - tanh(u)^2) in a numerically stable form.
    slope = 2 * (math.log(2) - u - nn.functional.softplus(-2 * u))
    return u.tanh(), (gaussian - slope).sum(-1)


def squashed_cloning_loss(outputs: Tensor, action: Tensor) -> Tensor:
    """Return the behavior cloning loss of each row.

    The loss is the squared error of the mean plus a likelihood loss that trains only the standard deviation. The joint
    likelihood would train the mean too slowly while the standard deviation is still large.
    """
    mean, log_std = outputs.chunk(2, dim=-1)
    near = mean.detach().clamp(-_ATANH_LIMIT, _ATANH_LIMIT)
    off = action.atanh().clamp(-_ATANH_LIMIT, _ATANH_LIMIT) - near
    log_std = log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX)
    spread = 0.5 * (off**2 + _MIN_STD**2) * (-2 * log_std).exp() + log_std
    return ((mean.tanh() - action) ** 2 + spread).sum(-1)


def temperature_loss(log_temperature: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """Return the temperature loss, which raises the temperature while the entropy is below ``target_entropy``."""
    return (log_temperature.exp() * (entropy.detach() - target_entropy)).mean()


class _Actions(Protocol):
    """Operations of SAC that depend on the action space."""

    default_target_entropy: float
    weights: Columns
    """Weights of the policy's head operation."""

    def blueprints(self, spec: Spec) -> Mapping[str, Blueprint]: ...

    def head(self, *, at_random: bool) -> Operation: ...

    def cloning_loss(self, outputs: Tensor, rows: Tensors) -> Tensor:
        """Return the mean behavior cloning loss of the actor outputs."""

    def chosen(self, critics: Critics, rows: Tensors) -> Tensor:
        """Return the Q-values of the actions in ``rows``; one row per critic."""

    def expected(self, actor: nn.Module, critics: Critics, observation: Tensors, noise: Noise) -> tuple[Tensor, Tensor]:
        """Return the policy's expected Q-value (minimum over critics) and entropy, differentiable in the actor."""


class _BoxActions(BoxActions):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.default_target_entropy = -float(self.size)

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
        return squashed_cloning_loss(outputs, self.encode(rows["action"]).clamp(-1, 1)).mean()

    def chosen(self, critics: Critics, rows: Tensors) -> Tensor:
        return critics.action_values(observation_of(rows, "obs."), self.encode(rows["action"]))

    def expected(self, actor: nn.Module, critics: Critics, observation: Tensors, noise: Noise) -> tuple[Tensor, Tensor]:
        outputs = actor(observation)
        action, log_prob = squashed_sample(outputs, noise.like(outputs[:, : self.size]))
        return critics.action_values(observation, action).amin(0), -log_prob


class _DiscreteActions:
    def __init__(self, choices: int) -> None:
        self._choices = choices
        self.weights: Columns = {}
        self.default_target_entropy = 0.5 * math.log(choices)

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
    actions = (ActionKind.DISCRETE, ActionKind.BOUNDED)
    default_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")
    fits_core: ClassVar = True
    """True if the native core implements the update of this class. A subclass must set this attribute itself, because
    an inherited value is ignored."""

    def __init__(self, setup: AlgorithmSetup[SACConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options, self._actions = setup, setup.options, _actions(setup.spec)
        self._device = torch.device(setup.device)
        actor_seed, *critic_seeds = setup.seed.generate_state(3).tolist()
        needed = self._actions.blueprints(setup.spec)
        self._actor = setup.place(build_network(setup.network("actor"), needed["actor"], actor_seed))
        self._critics = CriticLearner(setup, needed["critic"], critic_seeds)
        start = self._options.temperature or self._options.initial_temperature
        self._temperature = _Temperature(math.log(start)).to(self._device)
        self._actor_optimizer, self._temperature_optimizer = (
            make_adam(part, self._options.lr.start, eps=1e-8) for part in (self._actor, self._temperature)
        )
        self._noise = Noise(setup.seed.spawn(1)[0])
        self._core: CoreReplayUpdate | None = None
        self._updates = 0

    @staticmethod
    def blueprints(setup: AlgorithmSetup[SACConfig]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        return _actions(setup.spec).blueprints(setup.spec)

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        head = self._actions.head(at_random=acts_at_random(self._setup, self._options, steps))
        return TorchPolicy(self._setup.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._cloning_loss)

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        core = self._core_update()
        if core is not None:
            measured, error = self._update_in_core(core, rows, steps)
        else:
            measured, error = self._update_critics(rows, steps)
            measured |= self._update_actor(observation_of(rows, "obs."), steps)
        self._updates += 1
        if self._updates % self._options.target_update_interval == 0:
            self._critics.update_target()
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

    def _learning_rate(self, own: Schedule | None, steps: int) -> float:
        return (own or self._options.lr).at(steps, self._setup.total_timesteps)

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        return self._critics.learn(rows, self._values, self._learning_rate(None, steps), steps)

    def _values(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Return the Q-values of the actions (one row per critic), and the soft values of the next observations."""
        with torch.no_grad():
            observation = observation_of(rows, "next_obs.")
            value, entropy = self._actions.expected(self._actor, self._critics.target, observation, self._noise)
            soft_value = value + self._temperature() * entropy
        return self._actions.chosen(self._critics.online, rows), soft_value

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        set_lr(self._actor_optimizer, self._learning_rate(self._options.actor_lr, steps))
        results, max_norm = PartResults(), self._options.max_grad_norm
        with self._critics.frozen():
            losses = self._policy_losses(observation, results)
            descend_in_parts(self._actor_optimizer, self._actor, losses, max_norm, steps)
        measured = {**results.means, "policy/temperature": self._temperature().item()}
        if self._options.temperature is None:
            self._update_temperature(results.column("entropy"), steps)
        return measured

    def _policy_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, observation in split_rows(rows, self._options.accumulate):
            value, entropy = self._actions.expected(self._actor, self._critics.online, observation, self._noise)
            loss = -(value + self._temperature().detach() * entropy).mean()
            metrics = {"loss/policy": loss.item(), "policy/entropy": entropy.mean().item()}
            results.add(share, metrics, entropy=entropy)
            yield scaled({"policy": loss}, share)

    def _core_update(self) -> CoreReplayUpdate | None:
        """Return the update prepared for the native core, or None if torch must compute the update."""
        actions = self._actions
        if not fits_core(self, self._options.accumulate) or not isinstance(actions, _BoxActions):
            return None
        if self._core is None or not self._core.is_valid:
            bounds = (_LOG_STD_MIN, _LOG_STD_MAX)
            actor = TrainedActor(self._actor, self._actor_optimizer, actions.size, log_std_bounds=bounds)
            self._core = CoreReplayUpdate.of(actor, self._critics, self._options.max_grad_norm)
        return self._core

    def _update_in_core(self, core: CoreReplayUpdate, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        assert isinstance(self._actions, _BoxActions)
        batch = core.convert(rows, self._actions.encode, self._options.reward_scale)
        shape, temperature = (len(batch), self._actions.size), self._temperature().item()
        next_value = core.next_values(batch, self._noise.of(*shape), temperature)
        measured, error = core.learn_critics(batch, next_value, self._learning_rate(None, steps))
        if not math.isfinite(measured["loss/td"]):
            # Repeat the update in torch, which reports the loss or gradient that is not finite.
            measured, error = self._update_critics(rows, steps)
        rate = self._learning_rate(self._options.actor_lr, steps)
        loss, entropy = core.learn_actor(batch, self._noise.of(*shape), rate, temperature, use_minimum=True)
        if not math.isfinite(loss):
            return measured | self._update_actor(observation_of(rows, "obs."), steps), error
        if self._options.temperature is None:
            self._update_temperature_along(temperature * (entropy - self._target_entropy), steps)
        return measured | {"loss/policy": loss, "policy/entropy": entropy, "policy/temperature": temperature}, error

    @property
    def _target_entropy(self) -> float:
        wanted = self._options.target_entropy
        return self._actions.default_target_entropy if wanted is None else wanted

    def _update_temperature_along(self, gradient: float, steps: int) -> None:
        """Take one step of the temperature optimizer with a given gradient."""
        self._temperature.logarithm.grad = torch.tensor(gradient)
        set_lr(self._temperature_optimizer, self._learning_rate(self._options.temperature_lr, steps))
        take_step(self._temperature_optimizer, self._options.max_grad_norm)

    def _update_temperature(self, entropy: Tensor, steps: int) -> None:
        loss = temperature_loss(self._temperature.logarithm, entropy, self._target_entropy)
        set_lr(self._temperature_optimizer, self._learning_rate(self._options.temperature_lr, steps))
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
        return _DiscreteActions(spec.action.choices)
    return _BoxActions(spec)
