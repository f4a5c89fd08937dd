"""Deep Q-learning (Mnih et al. 2015), with double, dueling and n-step forms to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.errors import ConfigError
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Discrete, Spec, State

_ILLEGAL = -1e9
"""A value low enough that its action is never the best, yet finite."""


class DQNConfig(AlgorithmConfig):
    """Options of `dqn`."""

    lr: Schedule = constant(1e-4)
    """Step size of Adam."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    batch_size: int = Field(default=32, gt=0, le=1_000_000)
    """Transitions per gradient step."""
    learning_starts: int = Field(default=1000, ge=0)
    """Steps to gather before the first update."""
    train_frequency: int = Field(default=4, gt=0)
    """Environment steps between updates, over all environments."""
    gradient_steps: int = Field(default=1, gt=0, le=1_000_000)
    """Gradient steps each time."""
    target_update_interval: int = Field(default=1000, gt=0)
    """Environment steps between moves of the target network."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """How far the target network moves each time: 1 copies."""
    exploration: Schedule = Schedule(start=1.0, end=0.05, fraction=0.1)
    """Probability of a random action."""
    double: bool = True
    """Let the online network choose the action that the target network values (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Estimate the value of the state and the advantage of each action apart (Wang et al. 2016)."""
    n_step: int = Field(default=1, gt=0, le=10_000)
    """Rewards summed before the estimate of the rest."""
    max_grad_norm: float = Field(default=10.0, gt=0)
    """Gradients longer than this are shortened to it."""

    @field_validator("exploration")
    @classmethod
    def _check_probability(cls, exploration: Schedule) -> Schedule:
        if max(exploration.start, exploration.end) > 1:
            raise ValueError("it should be a probability, at most 1")
        return exploration


def td_target(reward: Tensor, discount: Tensor, terminated: Tensor, next_value: Tensor) -> Tensor:
    """Rewards seen, plus the discounted value of what follows unless nothing does."""
    return reward + discount * next_value * (~terminated).float()


def best_legal(values: Tensor, mask: Tensor | None) -> Tensor:
    """The index of the best action in each row."""
    return (values if mask is None else values.masked_fill(~mask, _ILLEGAL)).argmax(-1, keepdim=True)


class DQN:
    Config = DQNConfig
    usual_buffer: ClassVar = {"type": "uniform", "size": 100_000}
    roles = ("critic",)

    def __init__(self, recipe: Recipe[DQNConfig]) -> None:
        self._recipe, self._options, self._choices = recipe, recipe.options, _choices(recipe.spec)
        check_schedules(recipe.options, recipe.total_timesteps)
        self._device = torch.device(recipe.device)
        seed = int(recipe.seed.generate_state(1)[0])
        self._critic, self._target = (self._build_critic(seed) for _ in range(2))
        self._optimizer = make_adam(self._critic, self._options.lr.start, eps=1e-8)
        self._target_moved_at = 0

    @staticmethod
    def blueprints(recipe: Recipe[DQNConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        return {"critic": Blueprint(recipe.spec, _choices(recipe.spec) + recipe.options.dueling)}

    def make_buffer(self) -> Buffer:
        options = self._options
        demand = Demand(
            batch_size=options.batch_size,
            learning_starts=options.learning_starts,
            train_frequency=options.train_frequency,
            gradient_steps=options.gradient_steps,
            n_step=options.n_step,
            gamma=options.gamma,
        )
        return self._recipe.make_buffer(demand, fitting=("uniform",))

    def policy(self, steps: int) -> TorchPolicy:
        epsilon = self._options.exploration.at(steps, self._recipe.total_timesteps)
        return TorchPolicy(self._recipe.spec, self._critic, Operation("epsilon_greedy", options={"epsilon": epsilon}))

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._device)
        set_lr(self._optimizer, self._options.lr.at(steps, self._recipe.total_timesteps))
        self._move_target_if_due(steps)
        return Update(self._update_critic(rows, steps))

    def state(self) -> State:
        return {
            "critic": module_state(self._critic),
            "target": module_state(self._target),
            "optimizer": optimizer_state(self._optimizer),
            "target_moved_at": self._target_moved_at,
        }

    def restore(self, state: State) -> None:
        restore_module(self._critic, state["critic"])
        restore_module(self._target, state["target"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._target_moved_at = int(state["target_moved_at"])

    def _build_critic(self, seed: int) -> nn.Module:
        blueprint = self.blueprints(self._recipe)["critic"]
        network = build_network(self._recipe.network("critic"), blueprint, seed)
        return (Dueling(network, self._choices) if self._options.dueling else network).to(self._device)

    def _update_critic(self, rows: Tensors, steps: int) -> dict[str, float]:
        values: Tensor = self._critic(observation_of(rows, "obs."))
        chosen = values.gather(-1, rows["action"].unsqueeze(-1)).squeeze(-1)
        target = td_target(rows["reward"], rows["discount"], rows["terminated"], self._next_value(rows))
        loss = nn.functional.smooth_l1_loss(chosen, target)
        norm = descend(self._optimizer, self._critic, {"td": loss}, self._options.max_grad_norm, steps)
        return {"loss/td": loss.item(), "value/mean": chosen.detach().mean().item(), "loss/gradient_norm": norm}

    @torch.no_grad()
    def _next_value(self, rows: Tensors) -> Tensor:
        observation = observation_of(rows, "next_obs.")
        values: Tensor = self._target(observation)
        judge = self._critic(observation) if self._options.double else values
        return values.gather(-1, best_legal(judge, observation.get(MASK))).squeeze(-1)

    @torch.no_grad()
    def _move_target_if_due(self, steps: int) -> None:
        if steps - self._target_moved_at < self._options.target_update_interval:
            return
        self._target_moved_at = steps
        for target, online in zip(self._target.parameters(), self._critic.parameters(), strict=True):
            target.lerp_(online, self._options.tau)


def _choices(spec: Spec) -> int:
    if not isinstance(spec.action, Discrete):
        raise ConfigError("dqn needs discrete actions, and this environment has continuous ones; use ppo")
    return spec.action.choices
