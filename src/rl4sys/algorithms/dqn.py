"""Deep Q-learning (Mnih et al. 2015), with double, dueling and n-step forms to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.algorithms.actions import Actions
from rl4sys.algorithms.base import Recipe, Update
from rl4sys.algorithms.core_choices import CoreChoices
from rl4sys.algorithms.core_network import fits_core
from rl4sys.algorithms.distributions import ILLEGAL
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.numerics import GradNorm, descend, make_adam, set_lr
from rl4sys.algorithms.off_policy import Following, OffPolicyConfig, make_replay, td_target, weighted_mean
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of, to_array
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.noisy import renew_noise
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Array, Discrete, State

_MARGIN = 0.8


class DQNConfig(OffPolicyConfig):
    """Options of `dqn`."""

    lr: Schedule = constant(1e-4)
    """Step size of Adam."""
    batch_size: int = Field(default=32, gt=0, le=1_000_000)
    """Transitions per gradient step."""
    train_frequency: int = Field(default=4, gt=0)
    """Environment steps between updates, over all environments."""
    learning_starts: int = Field(default=1000, ge=0)
    """Steps to gather before the first update."""
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
    max_grad_norm: GradNorm = 10.0
    """Gradients longer than this are shortened to it; auto: than three times what is usual."""

    @property
    def numbers_per_choice(self) -> int:
        """What describes the value of one action."""
        return 1

    @field_validator("exploration")
    @classmethod
    def _check_probability(cls, exploration: Schedule) -> Schedule:
        if max(exploration.start, exploration.end) > 1:
            raise ValueError("it should be a probability, at most 1")
        return exploration


def best_legal(values: Tensor, mask: Tensor | None) -> Tensor:
    """The number of the best action of each row, among the legal ones."""
    return (values if mask is None else values.masked_fill(~mask, ILLEGAL)).argmax(-1, keepdim=True)


def of_choice(values: Tensor, choice: Tensor) -> Tensor:
    """From (rows, choices, ...) what belongs to one choice of each row."""
    at = choice.reshape(len(values), *[1] * (values.dim() - 1)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, at).squeeze(1)


def margin_loss(values: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
    """By how much another legal action is valued, with a margin, above what was done (Hester et al. 2017, eq. 1)."""
    margin = _MARGIN * torch.ones_like(values).scatter(-1, choice.unsqueeze(-1), 0.0)
    raised = values + margin if mask is None else (values + margin).masked_fill(~mask, ILLEGAL)
    return (raised.amax(-1) - of_choice(values, choice)).mean()


class DQN:
    """Variants say what the critic gives for each action, and how it errs."""

    Config = DQNConfig
    actions = (Actions.CHOICES,)
    usual_buffer: ClassVar = {"type": "uniform", "size": 100_000}
    roles = ("critic",)
    fits_core: ClassVar = True
    """The core knows all that is computed here; a class derived from this one says so itself if that is still so."""

    def __init__(self, recipe: Recipe[DQNConfig]) -> None:
        self._recipe, self._options, self._choices = recipe, recipe.options, choices_of(recipe)
        check_schedules(recipe.options, recipe.total_timesteps)
        self._device = torch.device(recipe.device)
        seed = int(recipe.seed.generate_state(1)[0])
        self._critic, self._target = (self._build_critic(seed) for _ in range(2))
        self._following = Following(self._target, self._critic)
        self._optimizer = make_adam(self._critic, self._options.lr.start, eps=1e-8)
        self._rng = np.random.default_rng(recipe.seed.spawn(1)[0])
        self._renew_noise()
        self._target_moved_at = 0
        self._core: CoreChoices | None = None

    @staticmethod
    def blueprints(recipe: Recipe[DQNConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        parts = choices_of(recipe) + recipe.options.dueling
        return {"critic": Blueprint(recipe.spec, parts * recipe.options.numbers_per_choice)}

    def make_buffer(self) -> Buffer:
        return make_replay(self._recipe, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        epsilon = self._options.exploration.at(steps, self._recipe.total_timesteps)
        return TorchPolicy(self._recipe.spec, self._critic, Operation("epsilon_greedy", options={"epsilon": epsilon}))

    def imitation(self) -> Imitation:
        return Imitation(self._critic, self._margin_loss, copies=[self._target])

    def update(self, batch: Batch, steps: int) -> Update:
        rows = dict(to_tensors(batch, self._device))
        rows["reward"] = self._options.reward_scale * rows["reward"]
        self._move_target_if_due(steps)
        self._renew_noise()
        core = self._in_core()
        measured, error = self._learn(rows, steps) if core is None else self._learn_in_core(core, rows, steps)
        return Update(measured, {"priority": error})

    def state(self) -> State:
        return {
            "critic": module_state(self._critic),
            "target": module_state(self._target),
            "optimizer": optimizer_state(self._optimizer),
            "target_moved_at": self._target_moved_at,
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: State) -> None:
        restore_module(self._critic, state["critic"])
        restore_module(self._target, state["target"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._target_moved_at = int(state["target_moved_at"])
        self._rng.bit_generator.state = state["rng"]

    def _learn(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        set_lr(self._optimizer, self._rate(steps))
        loss, value, error = self._errors(rows)
        mean = weighted_mean(loss, rows)
        norm = descend(self._optimizer, self._critic, {"td": mean}, self._options.max_grad_norm, steps)
        measured = {"loss/td": mean.item(), "value/mean": value.detach().mean().item(), "loss/gradient_norm": norm}
        return measured, to_array(error)

    def _in_core(self) -> CoreChoices | None:
        """The core, where it knows all that is computed here."""
        if not fits_core(self):
            return None
        if self._core is None or not self._core.current:
            self._core = CoreChoices.of(self._critic, self._target, self._optimizer)
        return self._core

    def _learn_in_core(self, core: CoreChoices, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        options = self._options
        measured, error = core.learn(rows, self._rate(steps), options.max_grad_norm, double=options.double)
        if not math.isfinite(measured["loss/td"]):
            # Torch says which loss or gradient it is.
            return self._learn(rows, steps)
        return measured, error

    def _rate(self, steps: int) -> float:
        return self._options.lr.at(steps, self._recipe.total_timesteps)

    def _margin_loss(self, rows: Tensors) -> Tensor:
        self._renew_noise()
        return margin_loss(self._critic(observation_of(rows, "obs.")), rows["action"], rows.get("obs." + MASK))

    def _valued(self, network: nn.Module) -> nn.Module:
        """The network as one that gives the value of each action."""
        return network

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row: the loss, the value of what was done, and how far off that was."""
        value = of_choice(self._critic(observation_of(rows, "obs.")), rows["action"])
        target = td_target(rows["reward"], rows["discount"], rows["terminated"], self._next_value(rows))
        loss = nn.functional.smooth_l1_loss(value, target, reduction="none")
        return loss, value, (value - target).detach().abs()

    @torch.no_grad()
    def _next_value(self, rows: Tensors) -> Tensor:
        observation = observation_of(rows, "next_obs.")
        values: Tensor = self._target(observation)
        return of_choice(values, self._next_choice(observation, values))

    def _next_choice(self, observation: Tensors, target_values: Tensor) -> Tensor:
        """What would be done: by the online network's values if double, else by the target network's."""
        judge = self._critic(observation) if self._options.double else target_values
        return best_legal(judge, observation.get(MASK))

    def _renew_noise(self) -> None:
        """Of noisy networks, so that each update, and each version that acts, has its own."""
        for network in (self._critic, self._target):
            renew_noise(network, self._rng)

    def _build_critic(self, seed: int) -> nn.Module:
        network = build_network(self._recipe.network("critic"), self.blueprints(self._recipe)["critic"], seed)
        if self._options.dueling:
            network = Dueling(network, self._choices, self._options.numbers_per_choice)
        return self._recipe.place(self._valued(network))

    def _move_target_if_due(self, steps: int) -> None:
        if steps - self._target_moved_at < self._options.target_update_interval:
            return
        self._target_moved_at = steps
        self._following.move(self._options.tau)


def choices_of(recipe: Recipe[DQNConfig]) -> int:
    assert isinstance(recipe.spec.action, Discrete)  # as the recipe made sure
    return recipe.spec.action.choices
