"""Soft Q-learning (Haarnoja et al. 2017, arXiv:1702.08165): energy-based policies, proportional to exp(Q).

The critics learn soft Q-values. The actor is a sampling network that maps noise to actions. It is trained with the
Stein variational gradient, which moves a set of sampled actions towards higher Q-values and away from each other.
"""

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
from rl4sys.algorithms.off_policy import (
    BoxActions,
    CriticLearner,
    Noise,
    OffPolicyConfig,
    acts_at_random,
    critic_blueprint,
    make_replay,
)
from rl4sys.algorithms.optimization import descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of, to_array
from rl4sys.networks.sampler import NOISE, Sampler, SamplingPolicy
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import to_tensors
from rl4sys.policy.program import Operation
from rl4sys.spec import Array, Box, Columns, Spec, State


class SoftQConfig(OffPolicyConfig):
    """Options of the `sql` algorithm."""

    actor_lr: Schedule | None = None
    """Learning rate of the actor; null uses lr."""
    particles: int = Field(default=32, gt=3, le=4096)
    """Number of actions sampled per observation; one half estimates the Stein gradient of the other half."""
    value_samples: int = Field(default=64, gt=0, le=100_000)
    """Number of uniform action samples to estimate the soft value of an observation."""
    target_update_interval: int = Field(default=1000, gt=0)
    """Number of gradient steps between target network updates."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """Polyak averaging factor for the target networks; 1 copies the weights."""


def soft_value(values: Tensor, action_size: int) -> Tensor:
    """Estimate the logarithm of the integral of exp(Q) over all actions in -1..1.

    The last axis of ``values`` has the Q-values of uniform action samples.
    """
    return values.logsumexp(-1) - math.log(values.shape[-1]) + action_size * math.log(2)


def stein_direction(pushing: Tensor, pushed: Tensor, gradient: Tensor) -> Tensor:
    """Return the Stein gradient of each ``pushed`` action.

    This gradient is the mean over the ``pushing`` actions of kernel * gradient + gradient of the kernel. Both sets of
    actions have the shape (..., particles, action dimensions); ``gradient`` is the gradient of the log-probability at
    ``pushing``. The kernel is Gaussian; the median of the squared distances sets its width.
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
    actions = (ActionKind.BOUNDED,)
    default_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor", "critic")

    def __init__(self, setup: AlgorithmSetup[SoftQConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._actions = BoxActions(setup.spec)
        self._device = torch.device(setup.device)
        actor_seed, *critic_seeds = setup.seed.generate_state(3).tolist()
        needed = self.blueprints(setup)
        network = build_network(setup.network("actor"), needed["actor"], actor_seed)
        self._actor = setup.place(Sampler(network, self._actions.size))
        self._critics = CriticLearner(setup, needed["critic"], critic_seeds)
        self._actor_optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)
        self._noise = Noise(setup.seed.spawn(1)[0])
        self._updates = 0

    @staticmethod
    def blueprints(setup: AlgorithmSetup[SoftQConfig]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        actions = BoxActions(setup.spec)
        noisy = Spec({**setup.spec.observation, NOISE: Box((actions.size,))}, setup.spec.action)
        return {"actor": Blueprint(noisy, actions.size), "critic": critic_blueprint(setup.spec, actions)}

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> SamplingPolicy:
        head = Operation("squash", ("low", "high"))
        if acts_at_random(self._setup, self._options, steps):
            head = Operation("uniform", ("low", "high"), {"parameters": 1})
        return SamplingPolicy(self._setup.spec, self._actor, head, self._actions.weights)

    def imitation(self) -> Imitation:
        return Imitation(self._actor, self._distance)

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        measured, error = self._update_critics(rows, steps)
        measured |= self._update_actor(observation_of(rows, "obs."), steps)
        self._updates += 1
        if self._updates % self._options.target_update_interval == 0:
            self._critics.update_target()
        return Update(measured, {"priority": error})

    def values(self, observation: Columns, action: Array) -> Array:
        """Return the soft Q-values of actions; up to a constant, these are the log-probabilities of the actions."""
        seen = to_tensors(observation, self._device)
        with torch.no_grad():
            unit = self._actions.encode(torch.as_tensor(action, device=self._device))
            return to_array(self._critics.online.action_values(seen, unit).amin(0))

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
        return self._critics.learn(rows, self._values, self._options.lr.at(steps, self._setup.total_timesteps), steps)

    def _values(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Return the Q-values of the actions (one row per critic), and the soft values of the next observations."""
        values = self._critics.online.action_values(observation_of(rows, "obs."), self._actions.encode(rows["action"]))
        return values, self._next_value(observation_of(rows, "next_obs."), len(rows["reward"]))

    def _distance(self, rows: Tensors) -> Tensor:
        """Return the mean squared error between the actor's samples and the recorded actions."""
        recorded = self._actions.encode(rows["action"])
        predicted = self._actor({**observation_of(rows, "obs."), NOISE: self._noise.like(recorded)}).tanh()
        return nn.functional.mse_loss(predicted, recorded)

    @torch.no_grad()
    def _next_value(self, observation: Tensors, rows: int) -> Tensor:
        shape = (rows, self._options.value_samples, self._actions.size)
        anywhere = 2 * torch.from_numpy(self._noise.rng.random(shape, "float32")).to(self._device) - 1
        values = self._critics.target.action_values(_repeated(observation, shape[1]), anywhere.flatten(0, 1)).amin(0)
        return soft_value(values.reshape(shape[:2]), self._actions.size)

    def _update_actor(self, observation: Tensors, steps: int) -> dict[str, float]:
        rate, results = self._options.actor_lr or self._options.lr, PartResults()
        set_lr(self._actor_optimizer, rate.at(steps, self._setup.total_timesteps))
        losses, max_norm = self._policy_losses(observation, results), self._options.max_grad_norm
        norm = descend_in_parts(self._actor_optimizer, self._actor, losses, max_norm, steps)
        return {**results.means, "policy/gradient_norm": norm}

    def _policy_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, observation in split_rows(rows, self._options.accumulate):
            loss, direction = self._stein_loss(observation)
            results.add(share, {"policy/direction": direction.norm(dim=-1).mean().item()})
            yield scaled({"policy": loss}, share)

    def _stein_loss(self, observation: Tensors) -> tuple[Tensor, Tensor]:
        """Return a loss whose negative gradient moves the actions along the Stein gradient, and the Stein gradient."""
        rows = len(next(iter(observation.values())))
        noise = self._noise.of(rows, self._options.particles, self._actions.size).to(self._device)
        noise_of_pushing, noise_of_pushed = noise.chunk(2, dim=1)
        with torch.no_grad():
            pushing = self._sampled(observation, noise_of_pushing)
        pushed = self._sampled(observation, noise_of_pushed)
        gradient = self._gradient(_repeated(observation, pushing.shape[1]), pushing.flatten(0, 1))
        direction = stein_direction(pushing, pushed.detach(), gradient.reshape(pushing.shape))
        return -(pushed * direction).sum(-1).mean(), direction

    def _sampled(self, observation: Tensors, noise: Tensor) -> Tensor:
        """Return one action per noise vector, with shape (rows, particles, action dimensions)."""
        samples: Tensor = self._actor({**_repeated(observation, noise.shape[1]), NOISE: noise.flatten(0, 1)})
        return samples.tanh().reshape(noise.shape)

    def _gradient(self, observation: Tensors, action: Tensor) -> Tensor:
        """Return the gradient of the log-probability that the critics assign to an action, with the tanh correction."""
        action = action.clone().requires_grad_()
        with self._critics.frozen():
            value = self._critics.online.action_values(observation, action).amin(0)
        total = (value + (1 - action**2 + 1e-6).log().sum(-1)).sum()
        return torch.autograd.grad(total, action)[0]


def _repeated(observation: Tensors, times: int) -> Tensors:
    """Repeat each row ``times`` times; copies of a row are consecutive."""
    return {name: column.repeat_interleave(times, dim=0) for name, column in observation.items()}
