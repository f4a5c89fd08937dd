"""Proximal policy optimisation, clipped (Schulman et al. 2017, arXiv:1707.06347).

Where older versions of the policy acted, the policy at the start of the update takes the part of the old policy, and
each step counts as much as that policy would have chosen it (the decoupled objective of Hilton et al. 2021,
arXiv:2110.00641, with V-trace's advantages and value targets of Espeholt et al. 2018, arXiv:1802.01561).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import ROLES, TRUNK, ActorCritic, blueprints, fit_of_critic, lag_of, standardized
from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.core_network import fits_core
from rl4sys.algorithms.core_update import MEASURED, CoreUpdate, Objective
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.algorithms.windows import cut, gather
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.errors import NumericalError
from rl4sys.networks.acting import TorchPolicy
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import Array, State


class PPOConfig(AlgorithmConfig):
    """Options of `ppo`."""

    lr: Schedule = constant(3e-4)
    """Step size of Adam."""
    critic_lr: Schedule | None = None
    """Step size of the critic; null for the same as lr."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Advantage estimates: 0 trusts the critic alone, 1 the rewards alone."""
    clip_ratio: Schedule = constant(0.2)
    """How far the probability of an action may move from what it was when chosen, as a ratio from 1."""
    value_coef: float = Field(default=0.5, ge=0)
    """Weight of the critic's loss."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for undecided policies."""
    epochs: int = Field(default=10, gt=0, le=10_000)
    """Passes over each rollout."""
    gradient_steps: int | None = Field(default=None, gt=0, le=1_000_000)
    """Gradient steps per rollout instead of whole passes over it; null: epochs decide."""
    minibatch_size: int = Field(default=64, gt=0, le=10_000_000)
    """Steps per gradient step."""
    value_clip: float | None = Field(default=None, gt=0)
    """How far the critic's estimate may move in one update; null for no limit."""
    target_kl: float | None = Field(default=None, gt=0)
    """End an update early once the policy has moved 1.5 times this far; null for never."""
    max_grad_norm: GradNorm = 0.5
    """Gradients longer than this are shortened to it; auto: than three times what is usual."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and deviation 1 within each minibatch."""
    window: int = Field(default=32, gt=0, le=100_000)
    """Steps that a network which remembers learns through at a time."""
    initial_log_std: float = 0.0
    """Continuous actions: logarithm of the first standard deviation."""


def clipped_policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float, weight: Tensor | float = 1.0
) -> Tensor:
    """Equation 7, negated: the smaller of the plain and the clipped gain; ``weight`` is that of each step."""
    ratio = (log_prob - old_log_prob).exp()
    return -(weight * torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Half the squared error; with ``clip``, the larger of it and that of the estimate moved at most so far."""
    error = (value - target) ** 2
    if clip is not None:
        moved = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.max(error, (moved - target) ** 2)
    return 0.5 * error.mean()


def kl_estimate(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """KL(old, new) from samples of old: the mean of r - 1 - log r, never negative (Schulman 2020)."""
    log_ratio = log_prob - old_log_prob
    return (log_ratio.exp() - 1 - log_ratio).mean()


class PPO:
    Config = PPOConfig
    actions = ALL_ACTIONS
    usual_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    optional_roles = (TRUNK,)
    blueprints = staticmethod(partial(blueprints, may_remember=True))
    fits_core: ClassVar = True
    """The core knows all that is computed here; a class derived from this one says so itself if that is still so."""

    def __init__(self, recipe: Recipe[PPOConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._networks = ActorCritic(recipe, self._options.initial_log_std, may_remember=True)
        self._optimizer = self._make_optimizer()
        self._rng = np.random.default_rng(recipe.seed.spawn(1)[0])

    def make_buffer(self) -> Buffer:
        return self._recipe.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rollout = self._networks.with_advantages(batch, self._options.gamma, self._options.gae_lambda)
        set_lr(self._optimizer, [lr.at(steps, self._recipe.total_timesteps) for lr in self._rates()])
        clip = self._options.clip_ratio.at(steps, self._recipe.total_timesteps)
        core = CoreUpdate.of(self._networks, self._optimizer) if fits_core(self) else None
        if core is not None:
            measured = self._learn_in_core(core, rollout, clip, steps)
        else:
            measured = self._learn(self._minibatches(rollout, batch["last"]), clip, steps)
        lr = {"policy/lr": self._optimizer.param_groups[0]["lr"]}
        return Update(measured | fit_of_critic(rollout) | lag_of(rollout) | lr)

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

    def _make_optimizer(self) -> torch.optim.Adam:
        networks, lr = self._networks, self._options.lr.start
        if self._options.critic_lr is None:
            return make_adam(networks, lr, eps=1e-5)
        return make_adam([networks.actor_parameters(), networks.critic_parameters()], lr, eps=1e-5)

    def _rates(self) -> list[Schedule]:
        """One for each group of parameters that the optimiser has."""
        return [rate for rate in (self._options.lr, self._options.critic_lr) if rate is not None]

    def _learn(self, minibatches: Iterable[Tensors], clip: float, steps: int) -> dict[str, float]:
        measured: list[dict[str, float]] = []
        for rows in minibatches:
            measured.append(self._descend(rows, clip, steps))
            if measured[-1]["policy/kl"] > self._most_kl:
                break
        return {name: float(np.mean([row[name] for row in measured])) for name in MEASURED}

    def _learn_in_core(self, core: CoreUpdate, rollout: Tensors, clip: float, steps: int) -> dict[str, float]:
        options = self._options
        objective = Objective(
            clip_ratio=clip,
            value_coef=options.value_coef,
            value_clip=options.value_clip,
            entropy_coef=options.entropy_coef,
            normalize_advantage=options.normalize_advantage,
            max_grad_norm=options.max_grad_norm,
            most_kl=self._most_kl,
        )
        size = options.minibatch_size
        passes = self._passes(len(rollout["reward"]), size)
        measured, spoilt = core.learn(rollout, passes, size, options.gradient_steps, objective)
        if spoilt is not None:
            # Torch says which loss or gradient it is.
            self._descend({name: column[spoilt] for name, column in rollout.items()}, clip, steps)
            raise NumericalError(f"a gradient was not finite at step {steps:,}, though what torch makes of it is")
        return dict(zip(MEASURED, measured.mean(0).tolist(), strict=True))

    @property
    def _most_kl(self) -> float:
        return math.inf if self._options.target_kl is None else 1.5 * self._options.target_kl

    def _minibatches(self, rollout: dict[str, Tensor], last: Array) -> Iterator[dict[str, Tensor]]:
        """The rollout in a new order for each pass: as many as ``epochs``, or as ``gradient_steps`` take."""
        if not self._networks.remembers:
            orders = self._orders(len(last), self._options.minibatch_size)
            return ({name: column[order] for name, column in rollout.items()} for order in orders)
        windows = cut(last, self._options.window)
        orders = self._orders(len(windows), max(1, self._options.minibatch_size // self._options.window))
        return (gather(rollout, windows[order.numpy()]) for order in orders)

    def _orders(self, things: int, at_once: int) -> Iterator[Tensor]:
        passes = map(torch.from_numpy, self._passes(things, at_once))
        minibatches = chain.from_iterable(torch.split(order, at_once) for order in passes)
        return islice(minibatches, self._options.gradient_steps)

    def _passes(self, things: int, at_once: int) -> Iterator[Array]:
        """An order for each pass, drawn as it begins."""
        steps, in_a_pass = self._options.gradient_steps, -(-things // at_once)
        passes = self._options.epochs if steps is None else -(-steps // in_a_pass)
        return (self._rng.permutation(things) for _ in range(passes))

    def _descend(self, rows: Tensors, clip: float, steps: int) -> dict[str, float]:
        options, rows = self._options, self._networks.with_features(rows)
        log_prob, entropy = self._action_terms(rows)
        advantage = standardized(rows["advantage"]) if options.normalize_advantage else rows["advantage"]
        value = self._networks.value(observation_of(rows, "obs."))
        losses = {
            "policy": clipped_policy_loss(log_prob, rows["log_prob"], advantage, clip, rows["weight"]),
            "value": options.value_coef * value_loss(value, rows["value"], rows["return"], options.value_clip),
            "entropy": -options.entropy_coef * entropy.mean(),
        }
        norm = descend(self._optimizer, self._networks, losses, options.max_grad_norm, steps)
        with torch.no_grad():
            kl = kl_estimate(log_prob, rows["log_prob"])
            clipped = ((log_prob - rows["log_prob"]).exp() - 1).abs().gt(clip).float().mean()
        return {
            "loss/policy": losses["policy"].item(),
            "loss/value": losses["value"].item(),
            "policy/entropy": entropy.mean().item(),
            "policy/kl": kl.item(),
            "policy/clip_fraction": clipped.item(),
            "loss/gradient_norm": norm,
        }

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        return self._networks.action_terms(rows)
