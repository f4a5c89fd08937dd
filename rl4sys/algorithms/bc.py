"""Behavior cloning: maximizes the likelihood of recorded actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.accumulation import PartResults, scaled, split_rows
from rl4sys.algorithms.actions import ALL_ACTIONS
from rl4sys.algorithms.actor_critic import Actor, blueprints
from rl4sys.algorithms.base import AlgorithmSetup, Update
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.off_policy import ReplayTrainingConfig, make_replay
from rl4sys.algorithms.optimization import descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.spec import State


class BCConfig(ReplayTrainingConfig):
    """Options of the `bc` algorithm."""

    lr: Schedule = constant(1e-3)
    """Learning rate of Adam."""
    learning_starts: int = Field(default=0, ge=0)
    """Number of environment steps before the first update."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    initial_log_std: float = -1.0
    """Initial log standard deviation of continuous actions."""


class BC:
    Config = BCConfig
    actions = ALL_ACTIONS
    default_buffer: ClassVar = {"type": "uniform", "size": 1_000_000}
    roles = ("actor",)

    def __init__(self, setup: AlgorithmSetup[BCConfig]) -> None:
        check_schedules(setup.options, setup.total_timesteps)
        self._setup, self._options = setup, setup.options
        self._actor = Actor(setup, self._options.initial_log_std)
        self._optimizer = make_adam(self._actor, self._options.lr.start, eps=1e-8)

    @staticmethod
    def blueprints(setup: AlgorithmSetup[BCConfig]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        return {"actor": blueprints(setup)["actor"]}

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        return self._actor.policy()

    def imitation(self) -> Imitation:
        return self._actor.imitation()

    def update(self, batch: Batch, steps: int) -> Update:
        rows = to_tensors(batch, self._actor.device)
        set_lr(self._optimizer, self._options.lr.at(steps, self._setup.total_timesteps))
        results = PartResults()
        losses = self._part_losses(rows, results)
        norm = descend_in_parts(self._optimizer, self._actor, losses, self._options.max_grad_norm, steps)
        return Update({**results.means, "loss/gradient_norm": norm})

    def state(self) -> State:
        return {"actor": module_state(self._actor), "optimizer": optimizer_state(self._optimizer)}

    def restore(self, state: State) -> None:
        restore_module(self._actor, state["actor"])
        restore_optimizer(self._optimizer, state["optimizer"])

    def _part_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            log_prob, entropy = self._actor.action_terms(part)
            losses = {
                "likelihood": cloning_loss(log_prob, part),
                "entropy": -self._options.entropy_coef * entropy.mean(),
            }
            metrics = {"loss/likelihood": losses["likelihood"].item(), "policy/entropy": entropy.mean().item()}
            results.add(share, metrics)
            yield scaled(losses, share)
