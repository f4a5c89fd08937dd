"""Soft Q-learning (Haarnoja et al. 2017, arXiv:1702.08165): policies as likely to act as the action is good.

The critics learn the soft value of each action, for any policy that is proportional to its exponential. The actor is a
network that turns noise into actions so distributed; it follows the Stein variational gradient, which moves a set of
actions towards better ones and apart from each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import (
    BoxActions,
    LearntCritics,
    Noise,
    OffPolicyConfig,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.schedule import Schedule, check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of, to_array
from rl4sys.networks.sampler import NOISE, Sampler, SamplingPolicy
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import Array, Box, Columns, Spec, State


class SoftQConfig(OffPolicyConfig):
    """Options of `sql`."""

    actor_lr: Schedule | None = None
    """Step size of the actor; null for the same as lr."""
    particles: int = Field(default=32, gt=3, le=4096)
    """Actions that are moved together for each observation: half of them push, half are pushed."""
    value_samples: int = Field(default=64, gt=0, le=100_000)
    """Actions, anywhere, that the soft value of an observation is estimated from."""
    target_update_interval: int = Field(default=1000, gt=0)
    """Gradient steps between moves of the target networks."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """How far target networks move each time: 1 copies."""


def soft_value(values: Tensor, action_size: int) -> Tensor:
    """ln of the integral of exp(value) over actions in (-1, 1), from values of uniform samples in the last axis."""
    return values.logsumexp(-1) - math.log(values.shape[-1]) + action_size * math.log(2)


def stein_direction(pushing: Tensor, pushed: Tensor, gradient: Tensor) -> Tensor:
    """Where each pushed action is to move: the mean over those pushing of kernel * gradient + gradient of the kernel.

    Shapes are (..., particles, elements); ``gradient`` is that of the log-probability at ``pushing``. The kernel is
    Gaussian, its width by the median of the squared distances.
    """
    apart = pushing.unsqueeze(-2) - pushed.unsqueeze(-3)
    distance = (apart**2).sum(-1)
    width = distance.flatten(-2).median(-1).values / math.log(pushing.shape[-2] + 1)
    width = width.clamp(min=1e-6)[..., None, None]
    kernel = (-distance / width).exp().unsqueeze(-1)
    slope = -2 * apart / width.unsqueeze(-1) * kernel
    return (kernel * gradient.unsqueeze(-2) + slope).mean(-3)


class SoftQ:
    Config = SoftQConfig
    actions = (Actions.BOUNDED,)
    usual_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")

    def __init__(self, recipe: Recipe[SoftQConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._actions = BoxActions(recipe.spec)
        self._device = torch.device(recipe.device)
        actor_seed, *critic_seeds = recipe.seed.generate_state(3).tolist()
        needed = self.blueprints(recipe)
        network = build_network(recipe.network("actor"), needed["actor"], actor_seed)
        self._actor = recipe.place(Sampler(network, self._actions.size))
        self._critics = LearntCritics(recipe, needed["critic"], critic_seeds)
        self._actor_optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)
        self._noise = Noise(recipe.seed.spawn(1)[0])
        self._updates = 0

    @staticmethod
    def blueprints(recipe: Recipe[SoftQConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        actions = BoxActions(recipe.spec)
        noisy = Spec({**recipe.spec.observation, NOISE: Box((actions.size,))}, recipe.spec.action)
        return {"actor": Blueprint(noisy, actions.size), "critic": critic_blueprint(recipe.spec, actions)}

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> SamplingPolicy:
        head = Operation("squash", ("low", "high"))
        if acts_at_random(self._recipe, self._options, steps):
            head = Operation("uniform", ("low", "high"), {"parameters": 1})
        return SamplingPolicy(self._recipe.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._distance)

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        measured, error = self._update_critics(rows, steps)
        measured |= self._update_actor(observation_of(rows, "obs."), steps)
        self._updates += 1
        if self._updates % self._options.target_update_interval == 0:
            self._critics.move_target()
        return Update(measured, {"priority": error})

    def values(self, observation: Columns, action: Array) -> Array:
        """What the critics make of each action, as a policy draws them: the ln of how likely it is to be taken, plus
        something that is the same for all actions."""
        seen = to_tensors(observation, self._device)
        with torch.no_grad():
            unit = self._actions.unit(torch.as_tensor(action, device=self._device))
            return to_array(self._critics.online.judge(seen, unit).amin(0))

    def state(self) -> State:
        return {
            "actor": module_state(self._actor),
            "critics": self._critics.state(),
            "actor_optimizer": optimizer_state(self._actor_optimizer),
            "rng": self._noise.rng.bit_generator.state,
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        self._critics.restore(state["critics"])
        restore_optimizer(self._actor_optimizer, state["actor_optimizer"])
        self._noise.rng.bit_generator.state = state["rng"]
        self._updates = int(state["updates"])

    def _update_critics(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        values = self._critics.online.judge(observation_of(rows, "obs."), self._actions.unit(rows["action"]))
        next_value = self._next_value(observation_of(rows, "next_obs."), len(rows["reward"]))
        rate = self._options.lr.at(steps, self._recipe.total_timesteps)
        return self._critics.learn(rows, values, next_value, rate, steps)

    def _distance(self, rows: Tensors) -> Tensor:
        """Between what the actor would do, whatever the noise, and what was done."""
        done = self._actions.unit(rows["action"])
        would = self._actor({**observation_of(rows, "obs."), NOISE: self._noise.like(done)}).tanh()
        return nn.functional.mse_loss(would, done)

    @torch.no_grad()
    def _next_value(self, observation: Tensors, rows: int) -> Tensor:
        shape = (rows, self._options.value_samples, self._actions.size)
        anywhere = 2 * torch.from_numpy(self._noise.rng.random(shape, "float32")).to(self._device) - 1
        values = self._critics.target.judge(_repeated(observation, shape[1]), anywhere.flatten(0, 1)).amin(0)
        return soft_value(values.reshape(shape[:2]), self._actions.size)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        particles, rows = self._options.particles, len(next(iter(observation.values())))
        seen = _repeated(observation, particles)
        noise = self._noise.like(torch.empty(rows * particles, self._actions.size, device=self._device))
        drawn = self._actor({**seen, NOISE: noise}).tanh().reshape(rows, particles, -1)
        pushing, pushed = drawn.detach().chunk(2, dim=1)
        gradient = self._gradient(_repeated(observation, pushing.shape[1]), pushing.flatten(0, 1))
        direction = stein_direction(pushing, pushed, gradient.reshape(pushing.shape))
        loss = -(drawn[:, pushing.shape[1] :] * direction).sum(-1).mean()
        rate = self._options.actor_lr or self._options.lr
        set_lr(self._actor_optimizer, rate.at(steps, self._recipe.total_timesteps))
        norm = descend(self._actor_optimizer, self._actor, {"policy": loss}, self._options.max_grad_norm, steps)
        return {"policy/direction": direction.norm(dim=-1).mean().item(), "policy/gradient_norm": norm}

    def _gradient(self, observation: Tensors, action: Tensor) -> Tensor:
        """That of the log-probability which the critics give an action, seen through tanh."""
        action = action.clone().requires_grad_()
        value = self._critics.online.judge(observation, action).amin(0)
        total = (value + (1 - action**2 + 1e-6).log().sum(-1)).sum()
        return torch.autograd.grad(total, action)[0]


def _repeated(observation: Tensors, times: int) -> Tensors:
    """Each row so many times, one after the other."""
    return {name: column.repeat_interleave(times, dim=0) for name, column in observation.items()}
