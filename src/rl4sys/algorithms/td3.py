"""Twin delayed deterministic policy gradients (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.core_network import fits_core
from rl4sys.algorithms.core_replay import CoreReplay, LearntActor
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import (
    BoxActions,
    Following,
    LearntCritics,
    Noise,
    OffPolicyConfig,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import Array, State


class TD3Config(OffPolicyConfig):
    """Options of `td3`."""

    lr: Schedule = constant(1e-3)
    """Step size of Adam, of the actor and of the critics."""
    exploration_noise: Schedule = constant(0.1)
    """Deviation of the noise added to actions, which are within -1..1 then."""
    policy_delay: int = Field(default=2, gt=0)
    """Gradient steps of the critics for each of the actor."""
    target_noise: float = Field(default=0.2, ge=0)
    """Deviation of the noise added to the actions that targets are computed with."""
    target_noise_clip: float = Field(default=0.5, ge=0)
    """How large that noise is at most."""


def smoothed(action: Tensor, noise: Tensor, clip: float) -> Tensor:
    """The action that a target is computed with: moved a little, by at most ``clip``, and still within -1..1."""
    return (action + noise.clamp(-clip, clip)).clamp(-1, 1)


class TD3:
    Config = TD3Config
    actions = (Actions.BOUNDED,)
    usual_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")
    fits_core: ClassVar = True
    """The core knows all that is computed here; a class derived from this one says so itself if that is still so."""
    critics: ClassVar[int] = 2
    """How many judge; the least of their values counts."""

    def __init__(self, recipe: Recipe[TD3Config]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._actions = BoxActions(recipe.spec)
        self._device = torch.device(recipe.device)
        self._actor, self._target_actor = self._build_actor(), self._build_actor()
        self._following = Following(self._target_actor, self._actor)
        seeds = recipe.seed.generate_state(1 + self.critics).tolist()[1:]
        self._critics = LearntCritics(recipe, self.blueprints(recipe)["critic"], seeds)
        self._actor_optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)
        self._noise = Noise(recipe.seed.spawn(1)[0])
        self._core: CoreReplay | None = None
        self._updates = 0

    @staticmethod
    def blueprints(recipe: Recipe[TD3Config]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        actions = BoxActions(recipe.spec)
        return {
            "actor": Blueprint(recipe.spec, actions.size, output_gain=0.01),
            "critic": critic_blueprint(recipe.spec, actions),
        }

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        sigma = self._options.exploration_noise.at(steps, self._recipe.total_timesteps)
        head = Operation("noisy_squash", ("low", "high"), {"sigma": sigma})
        if acts_at_random(self._recipe, self._options, steps):
            head = Operation("uniform", ("low", "high"), {"parameters": 1})
        return TorchPolicy(self._recipe.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._distance, copies=[self._target_actor])

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        core, with_actor = self._in_core(), (self._updates + 1) % self._options.policy_delay == 0
        if core is None:
            measured, error = self._learn(rows, steps, with_actor=with_actor)
        else:
            measured, error = self._learn_in_core(core, rows, steps, with_actor=with_actor)
        self._updates += 1
        if with_actor:
            self._following.move(self._options.tau)
            self._critics.move_target()
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
        seed = int(self._recipe.seed.generate_state(1)[0])
        needed = self.blueprints(self._recipe)["actor"]
        return self._recipe.place(build_network(self._recipe.network("actor"), needed, seed))

    def _rate(self, steps: int) -> float:
        return self._options.lr.at(steps, self._recipe.total_timesteps)

    def _learn(self, rows: Tensors, steps: int, *, with_actor: bool) -> tuple[dict[str, float], Array]:
        measured, error = self._update_critics(rows, steps)
        if with_actor:
            measured |= self._update_actor(observation_of(rows, "obs."), steps)
        return measured, error

    def _in_core(self) -> CoreReplay | None:
        """The core, where it knows all that is computed here."""
        if not fits_core(self):
            return None
        if self._core is None or not self._core.current:
            actor = LearntActor(self._actor, self._actor_optimizer, self._actions.size, self._target_actor)
            self._core = CoreReplay.of(actor, self._critics, self._options.max_grad_norm)
        return self._core

    def _learn_in_core(
        self, core: CoreReplay, rows: Tensors, steps: int, *, with_actor: bool
    ) -> tuple[dict[str, float], Array]:
        options, rate = self._options, self._rate(steps)
        replayed = core.take(rows, self._actions.unit, options.reward_scale)
        noise = torch.zeros(len(replayed), self._actions.size)
        if options.target_noise > 0:
            drawn = options.target_noise * self._noise.like(noise)
            noise = drawn.clamp(-options.target_noise_clip, options.target_noise_clip)
        measured, error = core.learn_critics(replayed, core.next_values(replayed, noise), rate)
        if not math.isfinite(measured["loss/td"]):
            # Torch says which loss or gradient it is.
            measured, error = self._update_critics(rows, steps)
        if with_actor:
            measured["loss/policy"], _ = core.learn_actor(replayed, noise, rate, by_least=False)
            if not math.isfinite(measured["loss/policy"]):
                measured |= self._update_actor(observation_of(rows, "obs."), steps)
        return measured, error

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        values = self._critics.online.judge(observation_of(rows, "obs."), self._actions.unit(rows["action"]))
        next_value = self._next_value(observation_of(rows, "next_obs."))
        return self._critics.learn(rows, values, next_value, self._rate(steps), steps)

    def _distance(self, rows: Tensors) -> Tensor:
        """Between what the actor would do and what was done."""
        would = self._actor(observation_of(rows, "obs.")).tanh()
        return nn.functional.mse_loss(would, self._actions.unit(rows["action"]))

    @torch.no_grad()
    def _next_value(self, observation: Tensors) -> Tensor:
        action = self._target_actor(observation).tanh()
        if self._options.target_noise > 0:
            noise = self._options.target_noise * self._noise.like(action)
            action = smoothed(action, noise, self._options.target_noise_clip)
        return self._critics.target.judge(observation, action).amin(0)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        set_lr(self._actor_optimizer, self._rate(steps))
        with self._critics.fixed():
            loss = -self._critics.online.judge_by_first(observation, self._actor(observation).tanh()).mean()
            descend(self._actor_optimizer, self._actor, {"policy": loss}, self._options.max_grad_norm, steps)
        return {"loss/policy": loss.item()}
