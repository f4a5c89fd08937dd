"""What the algorithms that learn from replay share: when they learn, target networks, critics of continuous actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmConfig, Options, Recipe
from rl4sys.algorithms.numerics import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, constant
from rl4sys.buffers.base import Buffer, Demand
from rl4sys.networks.base import Blueprint, Tensors, build_network, to_array
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.spec import Array, Box, Columns, Spec, State

REPLAYS = ("uniform", "prioritized")
"""The buffers that they learn from."""

TAKEN = "~action"
"""How a critic sees the action it judges: as one more observation, the last by name."""


class ReplayConfig(AlgorithmConfig):
    """Options of every algorithm that learns from replay."""

    lr: Schedule = constant(3e-4)
    """Step size of Adam."""
    batch_size: int = Field(default=256, gt=0, le=1_000_000)
    """Transitions per gradient step."""
    learning_starts: int = Field(default=1000, ge=0)
    """Steps to gather before the first update, with actions at random."""
    train_frequency: int = Field(default=1, gt=0)
    """Environment steps between updates, over all environments."""
    gradient_steps: int = Field(default=1, gt=0, le=1_000_000)
    """Gradient steps each time."""
    max_grad_norm: GradNorm = 1e6
    """Gradients longer than this are shortened to it; auto: than three times what is usual. The default is never."""


class OffPolicyConfig(ReplayConfig):
    """Options of every algorithm that learns values from replay."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    tau: float = Field(default=0.005, gt=0, le=1)
    """How far target networks move after each gradient step: 1 copies."""
    n_step: int = Field(default=1, gt=0, le=10_000)
    """Rewards summed before the estimate of the rest."""
    reward_scale: float = Field(default=1.0, gt=0)
    """Rewards are multiplied by this before they are learnt from."""


def make_replay(recipe: Recipe[Options], options: ReplayConfig) -> Buffer:
    n_step, gamma = (options.n_step, options.gamma) if isinstance(options, OffPolicyConfig) else (1, 1.0)
    demand = Demand(
        batch_size=options.batch_size,
        learning_starts=options.learning_starts,
        train_frequency=options.train_frequency,
        gradient_steps=options.gradient_steps,
        n_step=n_step,
        gamma=gamma,
    )
    return recipe.make_buffer(demand, fitting=REPLAYS)


def acts_at_random(recipe: Recipe[Options], options: ReplayConfig, steps: int) -> bool:
    """Whether there is nothing yet to act by."""
    return steps < options.learning_starts and not recipe.warm


def td_target(reward: Tensor, discount: Tensor, terminated: Tensor, next_value: Tensor) -> Tensor:
    """Rewards seen, plus the discounted value of what follows unless nothing does."""
    return reward + discount * next_value * (~terminated).float()


def weighted_mean(values: Tensor, rows: Tensors) -> Tensor:
    """The mean over rows, each as important as a prioritised buffer says it is; all alike otherwise."""
    return (values * rows["weight"]).mean() if "weight" in rows else values.mean()


class Following:
    """The weights of a network that follows another's, which are found once: that takes longer than to move them."""

    def __init__(self, target: nn.Module, online: nn.Module) -> None:
        self._target: list[Tensor] = [*target.parameters()]
        self._online: list[Tensor] = [*online.parameters()]

    @torch.no_grad()
    def move(self, tau: float) -> None:
        """So far of the way; 1 copies."""
        torch._foreach_lerp_(self._target, self._online, tau)


class JudgedActions(Protocol):
    """Actions that critics judge one at a time."""

    size: int
    """Numbers that an action is to a critic."""

    def unit(self, action: Tensor) -> Tensor:
        """Drawn actions, a flat row each, within -1..1."""


class BoxActions:
    """Continuous actions as policies draw them, within low..high, and as networks see them, within -1..1."""

    def __init__(self, spec: Spec) -> None:
        assert isinstance(spec.action, Box)  # as the recipe made sure
        low, high = (bound.reshape(-1) for bound in spec.action.bounds())
        self.size = spec.action.size
        self.weights: Columns = {"low": low.astype(np.float32), "high": high.astype(np.float32)}
        self._middle = torch.from_numpy((self.weights["low"] + self.weights["high"]) / 2)
        self._reach = torch.from_numpy((self.weights["high"] - self.weights["low"]) / 2)

    def unit(self, action: Tensor) -> Tensor:
        """Drawn actions, a flat row each, within -1..1."""
        flat = action.reshape(len(action), -1)
        return (flat - self._middle.to(flat.device)) / self._reach.to(flat.device)


def critic_blueprint(spec: Spec, actions: JudgedActions) -> Blueprint:
    """A network that judges an action, given within -1..1, beside what was observed."""
    return Blueprint(Spec({**spec.observation, TAKEN: Box((actions.size,))}, spec.action), 1)


class Critics(nn.Module):
    """Several critics, each of its own first weights."""

    def __init__(self, recipe: Recipe[Options], blueprint: Blueprint, seeds: Sequence[int]) -> None:
        super().__init__()
        self.members = nn.ModuleList(build_network(recipe.network("critic"), blueprint, seed) for seed in seeds)
        recipe.place(self)

    def forward(self, observation: Tensors) -> Tensor:
        """What each gives, one critic after the other."""
        return torch.stack([member(observation) for member in self.members])

    def judge(self, observation: Tensors, action: Tensor) -> Tensor:
        """Values of continuous actions, given within -1..1; a row for each critic."""
        values: Tensor = self({**observation, TAKEN: action}).squeeze(-1)
        return values

    def judge_by_first(self, observation: Tensors, action: Tensor) -> Tensor:
        """As the first critic alone judges."""
        value: Tensor = self.members[0]({**observation, TAKEN: action}).squeeze(-1)
        return value


class LearntCritics:
    """Critics that learn, and the copies of them, which follow slowly, that they learn towards."""

    def __init__(self, recipe: Recipe[OffPolicyConfig], blueprint: Blueprint, seeds: Sequence[int]) -> None:
        self._options = recipe.options
        self.online, self.target = (Critics(recipe, blueprint, seeds) for _ in range(2))
        self._following = Following(self.target, self.online)
        self._learnt = list(self.online.parameters())
        self.optimizer = make_adam(self.online, self._options.lr.start, eps=1e-8)

    def learn(
        self, rows: Tensors, values: Tensor, next_value: Tensor, lr: float, steps: int
    ) -> tuple[dict[str, float], Array]:
        """One step of the values of what was done towards what came of it; gives how far off each row was."""
        reward = self._options.reward_scale * rows["reward"]
        error = values - td_target(reward, rows["discount"], rows["terminated"], next_value)
        loss = 0.5 * weighted_mean((error**2).sum(0), rows)
        set_lr(self.optimizer, lr)
        norm = descend(self.optimizer, self.online, {"td": loss}, self._options.max_grad_norm, steps)
        measured = {"loss/td": loss.item(), "value/mean": values.mean().item(), "loss/gradient_norm": norm}
        return measured, to_array(error.detach().abs().mean(0))

    def move_target(self) -> None:
        self._following.move(self._options.tau)

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Within, gradients pass through the critics but are not computed for them."""
        for parameter in self._learnt:
            parameter.requires_grad = False
        try:
            yield
        finally:
            for parameter in self._learnt:
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
    """Normal numbers for updates, by a generator whose state is plain data."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self.rng = np.random.default_rng(seed)

    def like(self, values: Tensor) -> Tensor:
        return self.of(*values.shape).to(values.device)

    def of(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape, np.float32))
