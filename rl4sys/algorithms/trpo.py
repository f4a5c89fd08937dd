"""Trust region policy optimization (Schulman et al. 2015, arXiv:1502.05477).

Each update moves the actor along the natural gradient and limits the mean KL divergence from the old policy. The
conjugate gradient method computes the direction; a backtracking line search selects the step length.
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
from rl4sys.algorithms.actor_critic import (
    ROLES,
    ActorCritic,
    blueprints,
    explained_variance,
    staleness_metrics,
    standardized,
)
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Update
from rl4sys.algorithms.distributions import DistributionParams
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.optimization import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.base import observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.spec import State


class TRPOConfig(AlgorithmConfig):
    """Options of the `trpo` algorithm."""

    lr: Schedule = constant(1e-3)
    """Learning rate of the critic (Adam); the trust region sets the step length of the actor."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """GAE lambda: 0 uses the one-step TD error, 1 the full return."""
    max_kl: float = Field(default=0.01, gt=0)
    """Maximum mean KL divergence between the old and new policy in one update."""
    cg_steps: int = Field(default=15, gt=0, le=1000)
    """Number of conjugate gradient iterations."""
    cg_damping: float = Field(default=0.1, ge=0)
    """Damping added to the Fisher matrix."""
    backtracks: int = Field(default=10, gt=0, le=100)
    """Maximum number of line search steps; if none is accepted, the actor does not change."""
    backtrack_ratio: float = Field(default=0.8, gt=0, lt=1)
    """Factor applied to the step length in each line search step."""
    critic_updates: int = Field(default=10, gt=0, le=10_000)
    """Number of passes over each rollout to train the critic."""
    minibatch_size: int = Field(default=128, gt=0, le=10_000_000)
    """Number of rollout steps per critic gradient step."""
    max_grad_norm: GradNorm = 10.0
    """Maximum gradient norm of the critic; larger values are scaled down. "auto" uses three times the running norm."""
    normalize_advantage: bool = True
    """Normalize advantages to mean 0 and standard deviation 1 within each rollout."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""


def conjugate_gradients(product: Callable[[Tensor], Tensor], target: Tensor, steps: int) -> Tensor:
    """Solve ``product(x) = target`` approximately; ``product`` multiplies by a symmetric positive definite matrix."""
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
    default_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    blueprints = staticmethod(blueprints)

    def __init__(self, setup: AlgorithmSetup[TRPOConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        # Fisher-vector products need second derivatives, which the native core does not compute.
        self._networks = ActorCritic(replace(setup, backend="torch"), self._options.initial_log_std)
        self._optimizer = make_adam(self._networks.critic, self._options.lr.start, eps=1e-5)
        self._rng = np.random.default_rng(setup.seed.spawn(1)[0])

    def make_buffer(self) -> Buffer:
        return self._setup.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rollout = self._networks.with_advantages(batch, self._options.gamma, self._options.gae_lambda)
        if self._options.normalize_advantage:
            rollout["advantage"] = standardized(rollout["advantage"])
        measured = self._improve_actor(rollout) | self._fit_critic(rollout, steps)
        return Update(measured | explained_variance(rollout) | staleness_metrics(rollout))

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
        # Clone the parameters, because the line search changes them in place, including log_std.
        before = DistributionParams(*(part.detach().clone() for part in self._networks.distribution_params(rollout)))
        gain = self._gain(rollout)
        gradient = _flatten(torch.autograd.grad(gain, parameters, allow_unused=True), parameters)
        slope = _flatten(torch.autograd.grad(self._kl_from(before, rollout), parameters, create_graph=True), parameters)

        def curvature(vector: Tensor) -> Tensor:
            product = torch.autograd.grad(slope @ vector, parameters, retain_graph=True)
            return _flatten(product, parameters) + self._options.cg_damping * vector

        direction = conjugate_gradients(curvature, gradient, self._options.cg_steps)
        stretch = direction @ curvature(direction)
        if not torch.isfinite(stretch) or stretch <= 0:
            return {"policy/kl": 0.0, "policy/step": 0.0}
        return self._line_search(rollout, before, gain.item(), (2 * self._options.max_kl / stretch).sqrt() * direction)

    @torch.no_grad()
    def _line_search(
        self, rollout: dict[str, Tensor], before: DistributionParams, gain: float, full_step: Tensor
    ) -> dict[str, float]:
        """Backtracking line search; keeps the old weights if no step length improves the objective within `max_kl`."""
        parameters = [p for p in self._networks.actor_parameters() if p.numel()]
        start = _flatten(parameters, parameters)
        for attempt in range(self._options.backtracks):
            length = self._options.backtrack_ratio**attempt
            _set_parameters(start + length * full_step, parameters)
            kl, gained = self._kl_from(before, rollout).item(), self._gain(rollout).item() - gain
            if kl <= self._options.max_kl and gained > 0:
                return {"policy/kl": kl, "policy/step": length, "policy/gain": gained}
        _set_parameters(start, parameters)
        return {"policy/kl": 0.0, "policy/step": 0.0, "policy/gain": 0.0}

    def _gain(self, rollout: dict[str, Tensor]) -> Tensor:
        """Return the surrogate objective, equation 14."""
        log_prob, _ = self._networks.action_terms(rollout)
        return (rollout["weight"] * (log_prob - rollout["log_prob"]).exp() * rollout["advantage"]).mean()

    def _kl_from(self, before: DistributionParams, rollout: dict[str, Tensor]) -> Tensor:
        """Return the mean KL(old || current) between the old and the current policy."""
        return self._networks.distribution.kl(before, self._networks.distribution_params(rollout)).mean()

    def _fit_critic(self, rollout: dict[str, Tensor], steps: int) -> dict[str, float]:
        set_lr(self._optimizer, self._options.lr.at(steps, self._setup.total_timesteps))
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


def _flatten(parts: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors into one vector; None (a missing gradient) becomes zeros."""
    pairs = zip(parts, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if part is None else part).reshape(-1) for part, p in pairs])


def _set_parameters(values: Tensor, parameters: Sequence[Tensor]) -> None:
    for part, parameter in zip(torch.split(values, [p.numel() for p in parameters]), parameters, strict=True):
        parameter.copy_(part.view_as(parameter))
