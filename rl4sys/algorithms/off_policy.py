"""Shared parts of the off-policy algorithms: replay options, target networks, critics of continuous actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.accumulation import PartResults, Parts, scaled, split_rows
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Options
from rl4sys.algorithms.optimization import GradNorm, descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, constant
from rl4sys.buffers.base import Buffer, Demand
from rl4sys.networks.base import Blueprint, Tensors, build_network, to_array
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import Array, Box, Columns, Spec, State

REPLAY_BUFFERS = ("uniform", "prioritized")
"""Buffer types that off-policy algorithms can learn from."""

ACTION_INPUT = "~action"
"""Name under which a critic receives the action as an additional observation; sorts after all other names."""


class ReplayTrainingConfig(AlgorithmConfig):
    """Options of all algorithms that train on a replay buffer."""

    lr: Schedule = constant(3e-4)
    """Learning rate of Adam."""
    batch_size: int = Field(default=256, gt=0, le=1_000_000)
    """Number of transitions per gradient step."""
    learning_starts: int = Field(default=1000, ge=0)
    """Number of environment steps with uniformly random actions before the first update."""
    train_frequency: int = Field(default=1, gt=0)
    """Number of environment steps between updates, summed over all environments."""
    gradient_steps: int = Field(default=1, gt=0, le=1_000_000)
    """Number of gradient steps per update."""
    accumulate: Parts = 1
    """Number of parts into which each batch is split to save RAM. The gradients of all parts are summed before one
    optimizer step, so the result equals that of the whole batch up to rounding. With a value above 1, torch computes
    the update instead of the native core."""
    max_grad_norm: GradNorm = 1e6
    """Maximum global gradient norm; larger gradients are scaled down. "auto" uses three times the running norm. Off by
    default."""


class OffPolicyConfig(ReplayTrainingConfig):
    """Options of all algorithms that learn Q-values from a replay buffer."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    tau: float = Field(default=0.005, gt=0, le=1)
    """Polyak averaging factor for the target networks; 1 copies the weights."""
    n_step: int = Field(default=1, gt=0, le=10_000)
    """Number of rewards summed before bootstrapping (n-step return)."""
    reward_scale: float = Field(default=1.0, gt=0)
    """Factor applied to rewards before training."""


def make_replay(setup: AlgorithmSetup[Options], options: ReplayTrainingConfig) -> Buffer:
    """Build the replay buffer of an off-policy algorithm."""
    n_step, gamma = (options.n_step, options.gamma) if isinstance(options, OffPolicyConfig) else (1, 1.0)
    demand = Demand(
        batch_size=options.batch_size,
        learning_starts=options.learning_starts,
        train_frequency=options.train_frequency,
        gradient_steps=options.gradient_steps,
        n_step=n_step,
        gamma=gamma,
    )
    return setup.make_buffer(demand, fitting=REPLAY_BUFFERS)


def acts_at_random(setup: AlgorithmSetup[Options], options: ReplayTrainingConfig, steps: int) -> bool:
    """Return True if actions are uniformly random: before `learning_starts`, unless a warm start trained the policy."""
    return steps < options.learning_starts and not setup.warm


def td_target(reward: Tensor, discount: Tensor, terminated: Tensor, next_value: Tensor) -> Tensor:
    """Return the TD target: the reward plus the discounted next value, which is 0 after termination."""
    return reward + discount * next_value * (~terminated).float()


def weighted_mean(values: Tensor, rows: Tensors) -> Tensor:
    """Return the mean over rows; values are multiplied by the importance weights of a prioritized buffer, if any."""
    return (values * rows["weight"]).mean() if "weight" in rows else values.mean()


class TargetUpdater:
    """Polyak averaging of a target network.

    Parameters are collected once, in the constructor, because collecting them takes longer than an update.
    """

    def __init__(self, target: nn.Module, online: nn.Module) -> None:
        self._target: list[Tensor] = [*target.parameters()]
        self._online: list[Tensor] = [*online.parameters()]

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """Move the target weights towards the online weights by the factor ``tau``; 1 copies the weights."""
        torch._foreach_lerp_(self._target, self._online, tau)


class ActionEncoder(Protocol):
    """Encodes actions as input of a critic."""

    size: int
    """Length of an encoded action."""

    def encode(self, action: Tensor) -> Tensor:
        """Return the actions as critic inputs, one flat row per action."""


class BoxActions:
    """Scaling of bounded continuous actions between low..high in the environment and -1..1 in the networks."""

    def __init__(self, spec: Spec) -> None:
        assert isinstance(spec.action, Box)  # checked by AlgorithmSetup
        low, high = (bound.reshape(-1) for bound in spec.action.bounds())
        self.size = spec.action.size
        self.weights: Columns = {"low": low.astype(np.float32), "high": high.astype(np.float32)}
        self._center = torch.from_numpy((self.weights["low"] + self.weights["high"]) / 2)
        self._half_range = torch.from_numpy((self.weights["high"] - self.weights["low"]) / 2)

    def encode(self, action: Tensor) -> Tensor:
        """Scale actions to -1..1; returns one flat row per action."""
        flat = action.reshape(len(action), -1)
        return (flat - self._center.to(flat.device)) / self._half_range.to(flat.device)


def critic_blueprint(spec: Spec, actions: ActionEncoder) -> Blueprint:
    """Return the blueprint of a critic that takes an observation and an encoded action."""
    return Blueprint(Spec({**spec.observation, ACTION_INPUT: Box((actions.size,))}, spec.action), 1)


class Critics(nn.Module):
    """Ensemble of critics with different initial weights."""

    def __init__(self, setup: AlgorithmSetup[Options], blueprint: Blueprint, seeds: Sequence[int]) -> None:
        super().__init__()
        self.members = nn.ModuleList(build_network(setup.network("critic"), blueprint, seed) for seed in seeds)
        setup.place(self)

    def forward(self, observation: Tensors) -> Tensor:
        """Stack the outputs of all critics along the first axis."""
        return torch.stack([member(observation) for member in self.members])

    def action_values(self, observation: Tensors, action: Tensor) -> Tensor:
        """Return the Q-values of encoded actions; one row per critic."""
        values: Tensor = self({**observation, ACTION_INPUT: action}).squeeze(-1)
        return values

    def first_action_values(self, observation: Tensors, action: Tensor) -> Tensor:
        """Return the Q-values of encoded actions from the first critic alone."""
        value: Tensor = self.members[0]({**observation, ACTION_INPUT: action}).squeeze(-1)
        return value


RowValues: TypeAlias = Callable[[Tensors], tuple[Tensor, Tensor]]
"""Function from batch rows to the Q-values of the actions (one row per critic) and the next observations' values."""


class CriticLearner:
    """Online critics with their target networks and optimizer."""

    def __init__(self, setup: AlgorithmSetup[OffPolicyConfig], blueprint: Blueprint, seeds: Sequence[int]) -> None:
        self._options = setup.options
        self.online, self.target = (Critics(setup, blueprint, seeds) for _ in range(2))
        self._target_updater = TargetUpdater(self.target, self.online)
        self._parameters = list(self.online.parameters())
        self.optimizer = make_adam(self.online, self._options.lr.start, eps=1e-8)

    def learn(self, rows: Tensors, values_of: RowValues, lr: float, steps: int) -> tuple[dict[str, float], Array]:
        """Take one gradient step towards the TD targets; return metrics and the absolute TD error of each row."""
        results = PartResults()
        set_lr(self.optimizer, lr)
        losses = self._part_losses(rows, values_of, results)
        norm = descend_in_parts(self.optimizer, self.online, losses, self._options.max_grad_norm, steps)
        return {**results.means, "loss/gradient_norm": norm}, to_array(results.column("error"))

    def _part_losses(self, rows: Tensors, values_of: RowValues, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            values, next_value = values_of(part)
            reward = self._options.reward_scale * part["reward"]
            error = values - td_target(reward, part["discount"], part["terminated"], next_value)
            loss = 0.5 * weighted_mean((error**2).sum(0), part)
            metrics = {"loss/td": loss.item(), "value/mean": values.mean().item()}
            results.add(share, metrics, error=error.detach().abs().mean(0))
            yield scaled({"td": loss}, share)

    def update_target(self) -> None:
        self._target_updater.update(self._options.tau)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Return a context in which gradients flow through the critics but not into their parameters."""
        for parameter in self._parameters:
            parameter.requires_grad = False
        try:
            yield
        finally:
            for parameter in self._parameters:
                parameter.requires_grad = True

    def state(self) -> State:
        return {
            "online": module_state(self.online),
            "target": module_state(self.target),
            "optimizer": optimizer_state(self.optimizer),
        }

    def restore(self, state: State) -> None:
        restore_module(self.online, state["online"])
        restore_module(self.target, state["target"])
        restore_optimizer(self.optimizer, state["optimizer"])


class Noise:
    """Source of standard normal samples for updates; the generator state can be saved."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self.rng = np.random.default_rng(seed)

    def like(self, values: Tensor) -> Tensor:
        return self.of(*values.shape).to(values.device)

    def of(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape, np.float32))
