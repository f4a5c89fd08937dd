"""Trust region policy optimisation (Schulman et al. 2015, arXiv:1502.05477).

Each rollout moves the actor as far along the natural gradient as the mean KL divergence from the policy that acted
allows; the direction is found by conjugate gradients, the length by backtracking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import ROLES, ActorCritic, blueprints, fit_of_critic, lag_of, standardized
from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.distributions import Law
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.acting import TorchPolicy
from rl4sys.networks.base import observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import State


class TRPOConfig(AlgorithmConfig):
    """Options of `trpo`."""

    lr: Schedule = constant(1e-3)
    """Step size of the critic's Adam; the actor's steps are as long as the trust region allows."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Advantage estimates: 0 trusts the critic alone, 1 the rewards alone."""
    max_kl: float = Field(default=0.01, gt=0)
    """How far the policy may move in one update: the mean KL divergence from the policy that acted."""
    cg_steps: int = Field(default=15, gt=0, le=1000)
    """Steps of conjugate gradients that find the direction."""
    cg_damping: float = Field(default=0.1, ge=0)
    """Added to the curvature, so that directions of almost none stay bounded."""
    backtracks: int = Field(default=10, gt=0, le=100)
    """How often a step that leaves the trust region or makes things worse is shortened before it is given up."""
    backtrack_ratio: float = Field(default=0.8, gt=0, lt=1)
    """To which part of itself it is shortened each time."""
    critic_updates: int = Field(default=10, gt=0, le=10_000)
    """Passes of the critic over each rollout."""
    minibatch_size: int = Field(default=128, gt=0, le=10_000_000)
    """Steps per gradient step of the critic."""
    max_grad_norm: GradNorm = 10.0
    """Gradients of the critic longer than this are shortened to it; auto: than three times what is usual."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and deviation 1 within each rollout."""
    initial_log_std: float = 0.0
    """Continuous actions: logarithm of the first standard deviation."""


def conjugate_gradients(product: Callable[[Tensor], Tensor], target: Tensor, steps: int) -> Tensor:
    """An x with ``product(x)`` close to ``target``, for a product with a symmetric positive matrix."""
    solution, rest = torch.zeros_like(target), target.clone()
    direction, size = rest.clone(), rest @ rest
    for _ in range(steps):
        if size < 1e-10:
            break
        moved = product(direction)
        length = size / (direction @ moved)
        solution += length * direction
        rest -= length * moved
        size, last = rest @ rest, size
        direction = rest + size / last * direction
    return solution


class TRPO:
    Config = TRPOConfig
    actions = ALL_ACTIONS
    usual_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    blueprints = staticmethod(blueprints)

    def __init__(self, recipe: Recipe[TRPOConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        # A product with the curvature takes gradients of gradients.
        self._networks = ActorCritic(replace(recipe, backend="torch"), self._options.initial_log_std)
        self._optimizer = make_adam(self._networks.critic, self._options.lr.start, eps=1e-5)
        self._rng = np.random.default_rng(recipe.seed.spawn(1)[0])

    def make_buffer(self) -> Buffer:
        return self._recipe.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rollout = self._networks.with_advantages(batch, self._options.gamma, self._options.gae_lambda)
        if self._options.normalize_advantage:
            rollout["advantage"] = standardized(rollout["advantage"])
        measured = self._improve_actor(rollout) | self._fit_critic(rollout, steps)
        return Update(measured | fit_of_critic(rollout) | lag_of(rollout))

    def state(self) -> State:
        return {
            "networks": module_state(self._networks),
            "optimizer": optimizer_state(self._optimizer),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: State) -> None:
        restore_module(self._networks, state["networks"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._rng.bit_generator.state = state["rng"]

    def _improve_actor(self, rollout: dict[str, Tensor]) -> dict[str, float]:
        parameters = [p for p in self._networks.actor_parameters() if p.numel()]
        # Copies: the search changes the parameters, of which log_std is one, in place.
        before = Law(*(part.detach().clone() for part in self._networks.law(rollout)))
        gain = self._gain(rollout)
        gradient = _flat(torch.autograd.grad(gain, parameters, allow_unused=True), parameters)
        slope = _flat(torch.autograd.grad(self._kl_from(before, rollout), parameters, create_graph=True), parameters)

        def curvature(vector: Tensor) -> Tensor:
            product = torch.autograd.grad(slope @ vector, parameters, retain_graph=True)
            return _flat(product, parameters) + self._options.cg_damping * vector

        direction = conjugate_gradients(curvature, gradient, self._options.cg_steps)
        stretch = direction @ curvature(direction)
        if not torch.isfinite(stretch) or stretch <= 0:
            return {"policy/kl": 0.0, "policy/step": 0.0}
        return self._search(rollout, before, gain.item(), (2 * self._options.max_kl / stretch).sqrt() * direction)

    @torch.no_grad()
    def _search(self, rollout: dict[str, Tensor], before: Law, gain: float, full_step: Tensor) -> dict[str, float]:
        """The longest of ever shorter steps that stays in the trust region and gains; none, and the actor stays."""
        parameters = [p for p in self._networks.actor_parameters() if p.numel()]
        start = _flat(parameters, parameters)
        for attempt in range(self._options.backtracks):
            length = self._options.backtrack_ratio**attempt
            _put(start + length * full_step, parameters)
            kl, gained = self._kl_from(before, rollout).item(), self._gain(rollout).item() - gain
            if kl <= self._options.max_kl and gained > 0:
                return {"policy/kl": kl, "policy/step": length, "policy/gain": gained}
        _put(start, parameters)
        return {"policy/kl": 0.0, "policy/step": 0.0, "policy/gain": 0.0}

    def _gain(self, rollout: dict[str, Tensor]) -> Tensor:
        """Equation 14: the advantage of what was done, as likely as it is now."""
        log_prob, _ = self._networks.action_terms(rollout)
        return (rollout["weight"] * (log_prob - rollout["log_prob"]).exp() * rollout["advantage"]).mean()

    def _kl_from(self, before: Law, rollout: dict[str, Tensor]) -> Tensor:
        """How far the actor of now is from that of before, on average."""
        return self._networks.distribution.kl(before, self._networks.law(rollout)).mean()

    def _fit_critic(self, rollout: dict[str, Tensor], steps: int) -> dict[str, float]:
        set_lr(self._optimizer, self._options.lr.at(steps, self._recipe.total_timesteps))
        observation, returns = observation_of(rollout, "obs."), rollout["return"]
        losses: list[float] = []
        for _ in range(self._options.critic_updates):
            order = torch.from_numpy(self._rng.permutation(len(returns))).to(returns.device)
            for rows in torch.split(order, self._options.minibatch_size):
                value = self._networks.value({name: column[rows] for name, column in observation.items()})
                loss = torch.nn.functional.mse_loss(value, returns[rows])
                descend(self._optimizer, self._networks.critic, {"value": loss}, self._options.max_grad_norm, steps)
                losses.append(loss.item())
        return {"loss/value": float(np.mean(losses))}


def _flat(parts: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """End to end; what does not depend on a parameter has no part for it, and counts as 0."""
    pairs = zip(parts, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if part is None else part).reshape(-1) for part, p in pairs])


def _put(values: Tensor, parameters: Sequence[Tensor]) -> None:
    for part, parameter in zip(torch.split(values, [p.numel() for p in parameters]), parameters, strict=True):
        parameter.copy_(part.view_as(parameter))
