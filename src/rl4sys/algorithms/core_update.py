"""The passes of PPO over a rollout, and the one of A2C, in the native core: from gathering rows to the step.

What torch computes in `rl4sys.algorithms.ppo` and `a2c` is the reference: the same minibatches give the same weights,
but for what float32 rounds off.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.algorithms.actor_critic import ActorCritic
from rl4sys.algorithms.adam import fit_core
from rl4sys.algorithms.core_network import CoreNetwork, CoreOptimizer, learnt_network, watched
from rl4sys.algorithms.numerics import AUTO, GradNorm, clipping_of, remember_usual_norm
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.native import InCore
from rl4sys.spec import MASK, Array, Box

if TYPE_CHECKING:
    from rl4sys._core import PolicyUpdate

MEASURED = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clip_fraction", "loss/gradient_norm")
_KL = MEASURED.index("policy/kl")


@dataclass(frozen=True)
class Objective:
    """What is minimised in one update."""

    clip_ratio: float
    value_coef: float
    value_clip: float | None
    entropy_coef: float
    normalize_advantage: bool
    max_grad_norm: GradNorm
    most_kl: float
    by_ratio: bool = True
    """Whether gains are by how much likelier actions became; else by their log-probabilities, as A2C has it."""


class CoreUpdate:
    """An actor, a critic and their optimiser, for the core to move."""

    def __init__(
        self, networks: ActorCritic, optimizer: CoreOptimizer, actor: CoreNetwork, critic: CoreNetwork
    ) -> None:
        self._networks, self._optimizer, self._actor, self._critic = networks, optimizer, actor, critic

    @classmethod
    def of(cls, networks: ActorCritic, optimizer: torch.optim.Optimizer) -> CoreUpdate | None:
        """None where torch has to compute something, or where someone watches it compute."""
        if not isinstance(optimizer, CoreOptimizer) or watched(optimizer):
            return None
        actor, critic = CoreNetwork.of(networks.actor), CoreNetwork.of(networks.critic)
        if actor is None or critic is None or not fit_core(networks.parameters()):
            return None
        return cls(networks, optimizer, actor, critic)

    def learn(
        self, rollout: Tensors, passes: Iterable[Array], minibatch: int, most: int | None, objective: Objective
    ) -> tuple[Array, Array | None]:
        """A row of ``MEASURED`` for each minibatch of the passes; and the rows of one that is not finite, if one is.

        It ends there, after ``most`` minibatches, or after one that moved the policy further than ``most_kl``.
        """
        columns = self._columns(rollout, by_ratio=objective.by_ratio)
        core = self._prepared(columns, objective)
        measured: list[Array] = []
        left, spoilt = most or sys.maxsize, None
        for order in passes:
            room = np.empty((min(-(-len(order) // minibatch), left), len(MEASURED)))
            done = core.learn(order, minibatch, objective.most_kl, room)
            measured.append(room[:done])
            left -= done
            if done and room[done - 1, _KL] > objective.most_kl:
                break
            if done < len(room):
                spoilt = order[done * minibatch : (done + 1) * minibatch]
                break
        found = np.concatenate(measured)
        if objective.max_grad_norm == AUTO:
            mean, count = core.usual_norm
            remember_usual_norm(self._optimizer, mean, int(count))
        return found, spoilt

    def _columns(self, rollout: Tensors, *, by_ratio: bool) -> list[Tensor | None]:
        """As the core takes them."""
        assert isinstance(self._networks.actor, InCore)
        action, numbers = rollout["action"], self._deviations() is not None
        columns = [
            self._networks.actor.row(observation_of(rollout, "obs.")),
            rollout.get("obs." + MASK),
            None if numbers else action.long(),
            action.float() if numbers else None,
            rollout["log_prob"].float() if by_ratio else None,
            *(rollout[name].float() for name in ("advantage", "weight", "value", "return")),
        ]
        return [None if column is None else column.contiguous() for column in columns]

    def _prepared(self, columns: list[Tensor | None], objective: Objective) -> PolicyUpdate:
        from rl4sys._core import PolicyUpdate

        action, deviations = self._networks.spec.action, self._deviations()
        return PolicyUpdate(
            learnt_network(self._actor, self._optimizer, group=0),
            learnt_network(self._critic, self._optimizer, group=-1),
            [] if isinstance(action, Box) else action.parts,
            (0, 0, 0, 0) if deviations is None else self._optimizer.place(deviations),
            [0 if column is None else column.data_ptr() for column in columns],
            (
                objective.clip_ratio,
                0.5 * objective.value_coef,
                math.inf if objective.value_clip is None else objective.value_clip,
                objective.entropy_coef,
            ),
            objective.normalize_advantage,
            clipping_of(self._optimizer, objective.max_grad_norm),
        )

    def _deviations(self) -> nn.Parameter | None:
        return self._networks.log_std if self._networks.log_std.numel() else None
