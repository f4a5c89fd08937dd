"""PPO and A2C updates in the native core.

The torch code in `rl4sys.algorithms.ppo` and `a2c` is the reference: the same minibatches give the same weights up to
float32 rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.algorithms.actor_critic import ActorCritic
from rl4sys.algorithms.core_optimizers import are_core_compatible
from rl4sys.algorithms.native.network import CoreNetwork, CoreOptimizer, has_step_hooks, trainable_network
from rl4sys.algorithms.optimization import AUTO, GradNorm, clipping_arguments, save_running_norm
from rl4sys.algorithms.step_budget import StepBudget
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.native import HasCoreLayers
from rl4sys.spec import MASK, Array, Box

if TYPE_CHECKING:
    from rl4sys._core import PolicyUpdate

MEASURED = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clip_fraction", "loss/gradient_norm")
_KL = MEASURED.index("policy/kl")


@dataclass(frozen=True)
class Objective:
    """Coefficients of the losses, clip ranges and limits of one PPO or A2C update in the native core."""

    clip_ratio: float
    value_coef: float
    value_clip: float | None
    entropy_coef: float
    normalize_advantage: bool
    max_grad_norm: GradNorm
    max_kl: float
    by_ratio: bool = True
    """True if advantages are multiplied by the probability ratio (PPO); False for the log-probability (A2C)."""


class CorePolicyUpdate:
    """Actor, critic and optimizer prepared for updates in the core."""

    def __init__(
        self, networks: ActorCritic, optimizer: CoreOptimizer, actor: CoreNetwork, critic: CoreNetwork
    ) -> None:
        self._networks, self._optimizer, self._actor, self._critic = networks, optimizer, actor, critic

    @classmethod
    def of(cls, networks: ActorCritic, optimizer: torch.optim.Optimizer) -> CorePolicyUpdate | None:
        """Prepare updates in the core; returns None if torch has to compute a network or if hooks are registered."""
        if not isinstance(optimizer, CoreOptimizer) or has_step_hooks(optimizer):
            return None
        actor, critic = CoreNetwork.of(networks.actor), CoreNetwork.of(networks.critic)
        if actor is None or critic is None or not are_core_compatible(networks.parameters()):
            return None
        return cls(networks, optimizer, actor, critic)

    def learn(
        self, rollout: Tensors, passes: Iterable[Array], minibatch: int, budget: StepBudget, objective: Objective
    ) -> tuple[Array, Array | None]:
        """Run minibatch updates until ``budget`` is empty or the loss or gradient of a minibatch is not finite.

        Returns the metrics `MEASURED` of each minibatch, and the row indices of the minibatch that is not finite, or
        None. If the KL divergence of a minibatch exceeds ``max_kl``, the actor takes no further steps.
        """
        columns = self._columns(rollout, by_ratio=objective.by_ratio)
        core = self._prepared(columns, objective)
        measured: list[Array] = []
        not_finite = None
        for order in passes:
            rows, not_finite = self._run_pass(core, order, minibatch, budget, objective.max_kl)
            measured += rows
            if not_finite is not None or not budget.consecutive:
                break
        if objective.max_grad_norm == AUTO:
            mean, count = core.running_norm
            save_running_norm(self._optimizer, mean, int(count))
        return np.concatenate(measured), not_finite

    def _run_pass(
        self, core: PolicyUpdate, order: Array, minibatch: int, budget: StepBudget, max_kl: float
    ) -> tuple[list[Array], Array | None]:
        """Run the minibatch updates of one epoch, with the rows in the given order; return values as in `learn`."""
        measured: list[Array] = []
        while len(order) and budget.consecutive:
            room = np.empty((min(-(-len(order) // minibatch), budget.consecutive), len(MEASURED)))
            done = core.learn(order, minibatch, max_kl, room, budget.trained)
            measured.append(room[:done])
            budget.take(done)
            if done and room[done - 1, _KL] > max_kl:
                budget.stop_actor()
            elif done < len(room):
                return measured, order[done * minibatch : (done + 1) * minibatch]
            order = order[done * minibatch :]
        return measured, None

    def _columns(self, rollout: Tensors, *, by_ratio: bool) -> list[Tensor | None]:
        """Return the rollout columns in the order of `PolicyUpdate`; None for a missing column."""
        assert isinstance(self._networks.actor, HasCoreLayers)
        action, continuous = rollout["action"], self._log_std() is not None
        columns = [
            self._networks.actor.row(observation_of(rollout, "obs.")),
            rollout.get("obs." + MASK),
            None if continuous else action.long(),
            action.float() if continuous else None,
            rollout["log_prob"].float() if by_ratio else None,
            *(rollout[name].float() for name in ("advantage", "weight", "value", "return")),
        ]
        return [None if column is None else column.contiguous() for column in columns]

    def _prepared(self, columns: list[Tensor | None], objective: Objective) -> PolicyUpdate:
        from rl4sys._core import PolicyUpdate

        action, log_std = self._networks.spec.action, self._log_std()
        return PolicyUpdate(
            trainable_network(self._actor, self._optimizer, group=0),
            trainable_network(self._critic, self._optimizer, group=-1),
            [] if isinstance(action, Box) else action.parts,
            (0, 0, 0, 0) if log_std is None else self._optimizer.addresses_of(log_std),
            [0 if column is None else column.data_ptr() for column in columns],
            (
                objective.clip_ratio,
                0.5 * objective.value_coef,
                math.inf if objective.value_clip is None else objective.value_clip,
                objective.entropy_coef,
            ),
            objective.normalize_advantage,
            clipping_arguments(self._optimizer, objective.max_grad_norm),
        )

    def _log_std(self) -> nn.Parameter | None:
        return self._networks.log_std if self._networks.log_std.numel() else None
