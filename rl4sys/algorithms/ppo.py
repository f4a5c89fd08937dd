"""Proximal policy optimization with clipping (Schulman et al. 2017, arXiv:1707.06347).

Steps collected by older policy versions are corrected with importance weights. The proximal policy is the policy at the
start of the update (decoupled objective, Hilton et al. 2021, arXiv:2110.00641). Advantages and value targets are those
of V-trace (Espeholt et al. 2018, arXiv:1802.01561).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.accumulation import PartResults, Parts, scaled, split_rows
from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import (
    ROLES,
    TRUNK,
    ActorCritic,
    blueprints,
    explained_variance,
    staleness_metrics,
    standardized,
)
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Update
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.native.network import fits_core
from rl4sys.algorithms.native.policy_update import MEASURED, CorePolicyUpdate, Objective
from rl4sys.algorithms.optimization import GradNorm, descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.algorithms.step_budget import StepBudget, Trained
from rl4sys.algorithms.windows import gather_windows, split_windows
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.errors import ConfigError, NumericalError
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.spec import Array, State


class PPOConfig(AlgorithmConfig):
    """Options of the `ppo` algorithm."""

    lr: Schedule = constant(3e-4)
    """Learning rate of Adam."""
    critic_lr: Schedule | None = None
    """Learning rate of the critic; null uses lr."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """GAE lambda: 0 uses the one-step TD error, 1 the full return."""
    clip_ratio: Schedule = constant(0.2)
    """Clip range epsilon of the probability ratio."""
    value_coef: float = Field(default=0.5, ge=0)
    """Weight of the value loss."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    epochs: int = Field(default=10, gt=0, le=10_000)
    """Number of passes over each rollout."""
    gradient_steps: int | None = Field(default=None, gt=0, le=1_000_000)
    """Number of gradient steps per rollout, instead of `epochs`; null uses `epochs`."""
    critic_gradient_steps: int | None = Field(default=None, gt=0, le=1_000_000)
    """Number of critic gradient steps per rollout; null uses the number of actor steps. Actor and critic are first
    trained jointly; then the network with more steps is trained alone. If the critic has more steps, reaching
    `target_kl` stops only the actor."""
    minibatch_size: int = Field(default=64, gt=0, le=10_000_000)
    """Number of rollout steps per gradient step."""
    accumulate: Parts = 1
    """Number of parts into which each minibatch is split to save RAM. The gradients of all parts are summed before one
    optimizer step, so the result equals that of the whole minibatch up to rounding. With a value above 1, torch
    computes the update instead of the native core."""
    value_clip: float | None = Field(default=None, gt=0)
    """Clip range of the value function update; null disables clipping."""
    target_kl: float | None = Field(default=None, gt=0)
    """Target KL divergence: an update stops early if the KL divergence exceeds 1.5 times this value; null disables
    early stopping."""
    max_grad_norm: GradNorm = 0.5
    """Maximum global gradient norm; larger gradients are scaled down. "auto" uses three times the running norm."""
    normalize_advantage: bool = True
    """Normalize advantages to mean 0 and standard deviation 1 within each minibatch."""
    window: int = Field(default=32, gt=0, le=100_000)
    """Sequence length for truncated backpropagation through time in recurrent networks."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""


def clipped_policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float, weight: Tensor | float = 1.0
) -> Tensor:
    """Return the clipped surrogate loss, equation 7 negated; ``weight`` is the importance weight of each step."""
    ratio = (log_prob - old_log_prob).exp()
    return -(weight * torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Return half the mean squared error; with ``clip``, the larger error of value and clipped value in each row."""
    error = (value - target) ** 2
    if clip is not None:
        moved = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.max(error, (moved - target) ** 2)
    return 0.5 * error.mean()


def kl_estimate(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Estimate KL(old || new) from samples of old: the mean of r - 1 - log r, where r is new / old (Schulman 2020)."""
    log_ratio = log_prob - old_log_prob
    return (log_ratio.exp() - 1 - log_ratio).mean()


class PPO:
    Config = PPOConfig
    actions = ALL_ACTIONS
    default_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ROLES
    optional_roles = (TRUNK,)
    blueprints = staticmethod(partial(blueprints, allow_memory=True))
    fits_core: ClassVar = True
    """True if the native core implements the update of this class. A subclass must set this attribute itself, because
    an inherited value is ignored."""

    def __init__(self, setup: AlgorithmSetup[PPOConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        _check_step_counts(setup)
        self._setup, self._options = setup, setup.options
        self._networks = ActorCritic(setup, self._options.initial_log_std, allow_memory=True)
        self._optimizer = self._make_optimizer()
        self._rng = np.random.default_rng(setup.seed.spawn(1)[0])

    def make_buffer(self) -> Buffer:
        return self._setup.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        return self._networks.policy()

    def imitation(self) -> Imitation:
        return self._networks.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rollout = self._networks.with_advantages(batch, self._options.gamma, self._options.gae_lambda)
        set_lr(self._optimizer, [lr.at(steps, self._setup.total_timesteps) for lr in self._rates()])
        clip = self._options.clip_ratio.at(steps, self._setup.total_timesteps)
        core = self._core_update()
        if core is not None:
            measured = self._update_in_core(core, rollout, clip, steps)
        else:
            measured = self._learn(rollout, batch["last"], clip, steps)
        lr = {"policy/lr": self._optimizer.param_groups[0]["lr"]}
        return Update(measured | explained_variance(rollout) | staleness_metrics(rollout) | lr)

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
        if len(self._rates()) == 1:
            return make_adam(networks, lr, eps=1e-5)
        return make_adam([networks.actor_parameters(), networks.critic_parameters()], lr, eps=1e-5)

    def _rates(self) -> list[Schedule]:
        """Return the learning rate schedule of each parameter group of the optimizer."""
        options = self._options
        if options.critic_lr is None and not _has_separate_steps(options):
            return [options.lr]
        return [options.lr, options.critic_lr or options.lr]

    def _core_update(self) -> CorePolicyUpdate | None:
        """Return the update prepared for the native core, or None if torch must compute the update."""
        if not fits_core(self, self._options.accumulate):
            return None
        return CorePolicyUpdate.of(self._networks, self._optimizer)

    def _learn(self, rollout: dict[str, Tensor], last: Array, clip: float, steps: int) -> dict[str, float]:
        measured: list[dict[str, float]] = []
        budget, minibatches = self._minibatches(rollout, last)
        for rows in minibatches:
            measured.append(self._descend(rows, clip, steps, budget.trained))
            budget.take()
            if measured[-1].get("policy/kl", 0.0) > self._max_kl:
                budget.stop_actor()
            if not budget.consecutive:
                break
        return {name: float(np.mean([row[name] for row in measured if name in row])) for name in MEASURED}

    def _update_in_core(self, core: CorePolicyUpdate, rollout: Tensors, clip: float, steps: int) -> dict[str, float]:
        options = self._options
        objective = Objective(
            clip_ratio=clip,
            value_coef=options.value_coef,
            value_clip=options.value_clip,
            entropy_coef=options.entropy_coef,
            normalize_advantage=options.normalize_advantage,
            max_grad_norm=options.max_grad_norm,
            max_kl=self._max_kl,
        )
        size = options.minibatch_size
        budget, passes = self._passes(len(rollout["reward"]), size)
        measured, not_finite = core.learn(rollout, passes, size, budget, objective)
        if not_finite is not None:
            # Repeat the update in torch, which reports the loss or gradient that is not finite.
            rows = {name: column[not_finite] for name, column in rollout.items()}
            self._descend(rows, clip, steps, budget.trained)
            raise NumericalError(
                f"a gradient is not finite at step {steps:,} in the native core, but finite in torch; set "
                "experiment.backend=torch"
            )
        # A step that trains only one network has no metrics (NaN) of the other network.
        means = np.nanmean(measured, 0) if _has_separate_steps(options) else measured.mean(0)
        return dict(zip(MEASURED, means.tolist(), strict=True))

    @property
    def _max_kl(self) -> float:
        return math.inf if self._options.target_kl is None else 1.5 * self._options.target_kl

    def _minibatches(self, rollout: dict[str, Tensor], last: Array) -> tuple[StepBudget, Iterator[dict[str, Tensor]]]:
        """Return the step budget of the update, and an iterator over one shuffled minibatch per gradient step."""
        if not self._networks.has_memory:
            budget, orders = self._orders(len(last), self._options.minibatch_size)
            return budget, ({name: column[order] for name, column in rollout.items()} for order in orders)
        windows = split_windows(last, self._options.window)
        budget, orders = self._orders(len(windows), max(1, self._options.minibatch_size // self._options.window))
        return budget, (gather_windows(rollout, windows[order.numpy()]) for order in orders)

    def _orders(self, count: int, batch_size: int) -> tuple[StepBudget, Iterator[Tensor]]:
        budget, passes = self._passes(count, batch_size)
        orders = map(torch.from_numpy, passes)
        return budget, chain.from_iterable(torch.split(order, batch_size) for order in orders)

    def _passes(self, count: int, batch_size: int) -> tuple[StepBudget, Iterator[Array]]:
        """Return the step budget of the update, and an iterator over one random permutation of the rows per epoch."""
        options, steps_per_pass = self._options, -(-count // batch_size)
        actor = options.gradient_steps or options.epochs * steps_per_pass
        critic = options.critic_gradient_steps or actor
        passes = -(-max(actor, critic) // steps_per_pass)
        return StepBudget(actor, critic), (self._rng.permutation(count) for _ in range(passes))

    def _descend(self, rows: Tensors, clip: float, steps: int, trained: Trained) -> dict[str, float]:
        """Take one gradient step; return the metrics of the trained networks."""
        options, results = self._options, PartResults()
        if options.normalize_advantage:
            rows = {**rows, "advantage": standardized(rows["advantage"])}
        losses = self._part_losses(rows, clip, trained, results)
        norm = descend_in_parts(self._optimizer, self._networks, losses, options.max_grad_norm, steps)
        return {**results.means, "loss/gradient_norm": norm}

    def _part_losses(
        self, rows: Tensors, clip: float, trained: Trained, results: PartResults
    ) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            seen = self._networks.with_features(part)
            losses, metrics = ({}, {}) if trained is Trained.CRITIC else self._policy_losses(seen, clip)
            if trained is not Trained.ACTOR:
                losses["value"] = self._value_loss(seen)
                metrics["loss/value"] = losses["value"].item()
            results.add(share, metrics)
            yield scaled(losses, share)

    def _policy_losses(self, rows: Tensors, clip: float) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return the losses and the metrics of the actor."""
        log_prob, entropy = self._action_terms(rows)
        losses = {
            "policy": clipped_policy_loss(log_prob, rows["log_prob"], rows["advantage"], clip, rows["weight"]),
            "entropy": -self._options.entropy_coef * entropy.mean(),
        }
        with torch.no_grad():
            clipped = ((log_prob - rows["log_prob"]).exp() - 1).abs().gt(clip).float().mean()
            metrics = {
                "loss/policy": losses["policy"].item(),
                "policy/entropy": entropy.mean().item(),
                "policy/kl": kl_estimate(log_prob, rows["log_prob"]).item(),
                "policy/clip_fraction": clipped.item(),
            }
        return losses, metrics

    def _value_loss(self, rows: Tensors) -> Tensor:
        options, value = self._options, self._networks.value(observation_of(rows, "obs."))
        return options.value_coef * value_loss(value, rows["value"], rows["return"], options.value_clip)

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        return self._networks.action_terms(rows)


def _has_separate_steps(options: PPOConfig) -> bool:
    """Return True if actor and critic may take different numbers of gradient steps."""
    return options.critic_gradient_steps not in (None, options.gradient_steps)


def _check_step_counts(setup: AlgorithmSetup[PPOConfig]) -> None:
    if TRUNK in setup.networks and _has_separate_steps(setup.options):
        of_actor = setup.options.gradient_steps
        raise ConfigError(
            f"algorithm.critic_gradient_steps is {setup.options.critic_gradient_steps} and algorithm.gradient_steps is "
            f"{'null' if of_actor is None else of_actor}, but actor and critic share network.{TRUNK} and need equal "
            f"numbers of steps; set both options to the same value, or remove network.{TRUNK}"
        )
