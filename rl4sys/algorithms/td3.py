"""Twin delayed deterministic policy gradients (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.accumulation import PartResults, scaled, split_rows
from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmSetup, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.native.network import fits_core
from rl4sys.algorithms.native.replay_update import CoreReplayUpdate, TrainedActor
from rl4sys.algorithms.off_policy import (
    BoxActions,
    CriticLearner,
    Noise,
    OffPolicyConfig,
    TargetUpdater,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.optimization import descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.policy.program import Operation
from rl4sys.spec import Array, State


class TD3Config(OffPolicyConfig):
    """Options of the `td3` algorithm."""

    lr: Schedule = constant(1e-3)
    """Learning rate of Adam, for actor and critics."""
    actor_lr: Schedule | None = None
    """Learning rate of the actor; null uses lr."""
    exploration_noise: Schedule = constant(0.1)
    """Standard deviation of the Gaussian exploration noise, in actions scaled to -1..1."""
    policy_delay: int = Field(default=2, gt=0)
    """Number of critic updates per actor update."""
    target_noise: float = Field(default=0.2, ge=0)
    """Standard deviation of the target policy smoothing noise."""
    target_noise_clip: float = Field(default=0.5, ge=0)
    """Clip range of the target policy smoothing noise."""


def smoothed(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Smooth target actions: add noise clipped to -clip..clip, and clip the result to -1..1."""
    return (action + noise.clamp(-clip, clip)).clamp(-1, 1)


class TD3:
    Config = TD3Config
    actions = (ActionKind.BOUNDED,)
    default_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")
    fits_core: ClassVar = True
    """True if the native core implements the update of this class. A subclass must set this attribute itself, because
    an inherited value is ignored."""
    critics: ClassVar[int] = 2
    """Number of critics; TD targets use the minimum over critics."""

    def __init__(self, setup: AlgorithmSetup[TD3Config]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._actions = BoxActions(setup.spec)
        self._device = torch.device(setup.device)
        self._actor, self._target_actor = self._build_actor(), self._build_actor()
        self._target_updater = TargetUpdater(self._target_actor, self._actor)
        seeds = setup.seed.generate_state(1 + self.critics).tolist()[1:]
        self._critics = CriticLearner(setup, self.blueprints(setup)["critic"], seeds)
        self._actor_optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)
        self._noise = Noise(setup.seed.spawn(1)[0])
        self._core: CoreReplayUpdate | None = None
        self._updates = 0

    @staticmethod
    def blueprints(setup: AlgorithmSetup[TD3Config]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        actions = BoxActions(setup.spec)
        return {
            "actor": Blueprint(setup.spec, actions.size, output_gain=0.01),
            "critic": critic_blueprint(setup.spec, actions),
        }

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        sigma = self._options.exploration_noise.at(steps, self._setup.total_timesteps)
        head = Operation("noisy_squash", ("low", "high"), {"sigma": sigma})
        if acts_at_random(self._setup, self._options, steps):
            head = Operation("uniform", ("low", "high"), {"parameters": 1})
        return TorchPolicy(self._setup.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._distance, copies=[self._target_actor])

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        core, with_actor = self._core_update(), (self._updates + 1) % self._options.policy_delay == 0
        if core is None:
            measured, error = self._learn(rows, steps, with_actor=with_actor)
        else:
            measured, error = self._update_in_core(core, rows, steps, with_actor=with_actor)
        self._updates += 1
        if with_actor:
            self._target_updater.update(self._options.tau)
            self._critics.update_target()
        return Update(measured, {"priority": error})

    def state(self) -> State:
        return {
            "actor": module_state(self._actor),
            "target_actor": module_state(self._target_actor),
            "critics": self._critics.state(),
            "actor_optimizer": optimizer_state(self._actor_optimizer),
            "rng": self._noise.rng.bit_generator.state,
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        restore_module(self._target_actor, state["target_actor"])
        self._critics.restore(state["critics"])
        restore_optimizer(self._actor_optimizer, state["actor_optimizer"])
        self._noise.rng.bit_generator.state = state["rng"]
        self._updates = int(state["updates"])

    def _build_actor(self) -> nn.Module:
        seed = int(self._setup.seed.generate_state(1)[0])
        needed = self.blueprints(self._setup)["actor"]
        return self._setup.place(build_network(self._setup.network("actor"), needed, seed))

    def _learning_rate(self, steps: int) -> float:
        return self._options.lr.at(steps, self._setup.total_timesteps)

    def _actor_learning_rate(self, steps: int) -> float:
        return (self._options.actor_lr or self._options.lr).at(steps, self._setup.total_timesteps)

    def _learn(self, rows: Tensors, steps: int, *, with_actor: bool) -> tuple[dict[str, float], Array]:
        measured, error = self._update_critics(rows, steps)
        if with_actor:
            measured |= self._update_actor(observation_of(rows, "obs."), steps)
        return measured, error

    def _core_update(self) -> CoreReplayUpdate | None:
        """Return the update prepared for the native core, or None if torch must compute the update."""
        if not fits_core(self, self._options.accumulate):
            return None
        if self._core is None or not self._core.is_valid:
            actor = TrainedActor(self._actor, self._actor_optimizer, self._actions.size, self._target_actor)
            self._core = CoreReplayUpdate.of(actor, self._critics, self._options.max_grad_norm)
        return self._core

    def _update_in_core(
        self, core: CoreReplayUpdate, rows: Tensors, steps: int, *, with_actor: bool
    ) -> tuple[dict[str, float], Array]:
        options, rate = self._options, self._learning_rate(steps)
        batch = core.convert(rows, self._actions.encode, options.reward_scale)
        noise = torch.zeros(len(batch), self._actions.size)
        if options.target_noise > 0:
            drawn = options.target_noise * self._noise.like(noise)
            noise = drawn.clamp(-options.target_noise_clip, options.target_noise_clip)
        measured, error = core.learn_critics(batch, core.next_values(batch, noise), rate)
        if not math.isfinite(measured["loss/td"]):
            # Repeat the update in torch, which reports the loss or gradient that is not finite.
            measured, error = self._update_critics(rows, steps)
        if with_actor:
            rate = self._actor_learning_rate(steps)
            measured["loss/policy"], _ = core.learn_actor(batch, noise, rate, use_minimum=False)
            if not math.isfinite(measured["loss/policy"]):
                measured |= self._update_actor(observation_of(rows, "obs."), steps)
        return measured, error

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        return self._critics.learn(rows, self._values, self._learning_rate(steps), steps)

    def _values(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Return the Q-values of the actions (one row per critic), and the values of the next observations."""
        values = self._critics.online.action_values(observation_of(rows, "obs."), self._actions.encode(rows["action"]))
        return values, self._next_value(observation_of(rows, "next_obs."))

    def _distance(self, rows: Tensors) -> Tensor:
        """Return the mean squared error between the actor's actions and the recorded actions."""
        predicted = self._actor(observation_of(rows, "obs.")).tanh()
        return nn.functional.mse_loss(predicted, self._actions.encode(rows["action"]))

    @torch.no_grad()
    def _next_value(self, observation: Tensors) -> Tensor:
        action = self._target_actor(observation).tanh()
        if self._options.target_noise > 0:
            noise = self._options.target_noise * self._noise.like(action)
            action = smoothed(action, noise, self._options.target_noise_clip)
        return self._critics.target.action_values(observation, action).amin(0)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        set_lr(self._actor_optimizer, self._actor_learning_rate(steps))
        results, max_norm = PartResults(), self._options.max_grad_norm
        with self._critics.frozen():
            losses = self._policy_losses(observation, results)
            descend_in_parts(self._actor_optimizer, self._actor, losses, max_norm, steps)
        return results.means

    def _policy_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, observation in split_rows(rows, self._options.accumulate):
            loss = -self._critics.online.first_action_values(observation, self._actor(observation).tanh()).mean()
            results.add(share, {"loss/policy": loss.item()})
            yield scaled({"policy": loss}, share)
