"""Actor and critic updates of SAC, TD3 and DDPG in the native core.

The torch code in `rl4sys.algorithms.sac` and `td3` is the reference: the same rows and noise give the same weights up
to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rl4sys.algorithms.core_optimizers import CoreAdam, are_core_compatible
from rl4sys.algorithms.native.network import (
    CoreNetwork,
    frozen_network,
    has_step_hooks,
    read_result,
    trainable_network,
    weight_addresses,
)
from rl4sys.algorithms.off_policy import CriticLearner
from rl4sys.algorithms.optimization import GradNorm, clipping_arguments
from rl4sys.networks.base import Tensors, observation_of, to_array
from rl4sys.networks.native import HasCoreLayers, addresses
from rl4sys.spec import Array


@dataclass(frozen=True)
class TrainedActor:
    """Actor network with its optimizer, and the properties that the core needs."""

    network: nn.Module
    optimizer: CoreAdam
    size: int
    """Action dimension."""
    target: nn.Module | None = None
    """Target actor for the next actions; None uses the actor itself."""
    log_std_bounds: tuple[float, ...] = ()
    """Bounds of log_std if the actor is a squashed Gaussian; empty if it is deterministic."""


@dataclass(frozen=True)
class CoreBatch:
    """Batch of transitions as contiguous float32 tensors, as the native core expects."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    discount: Tensor
    weight: Tensor | None

    def __len__(self) -> int:
        return len(self.reward)


class CoreReplayUpdate:
    """SAC, TD3 or DDPG update in the core, prepared once and used while the stored data addresses are valid."""

    def __init__(
        self, actor: TrainedActor, critics: CriticLearner, max_grad_norm: GradNorm, found: dict[nn.Module, CoreNetwork]
    ) -> None:
        from rl4sys._core import ReplayUpdate

        self._actor, self._critics, self._max_grad_norm = actor, critics, max_grad_norm
        self._networks = [network for network in found if isinstance(network, HasCoreLayers)]
        self._loads = self._loads_of_optimizers()
        self._found = list(found.values())
        self._addresses = weight_addresses(self._found)
        # Keep references, because these networks must exist as long as ReplayUpdate uses them.
        self._trained_actor = trainable_network(found[actor.network], actor.optimizer)
        self._online_critics = [
            trainable_network(found[network], critics.optimizer) for network in critics.online.members
        ]
        self._target_critics = [frozen_network(found[network]) for network in critics.target.members]
        self._target_actor = None if actor.target is None else frozen_network(found[actor.target])
        self._update = ReplayUpdate(
            self._trained_actor,
            self._target_actor,
            self._online_critics,
            self._target_critics,
            actor.size,
            list(actor.log_std_bounds),
        )

    @classmethod
    def of(cls, actor: TrainedActor, critics: CriticLearner, max_grad_norm: GradNorm) -> CoreReplayUpdate | None:
        """Prepare updates in the core; returns None if torch has to compute a network or if hooks are registered."""
        if has_step_hooks(actor.optimizer, critics.optimizer):
            return None
        targets = [] if actor.target is None else [actor.target]
        found: dict[nn.Module, CoreNetwork] = {}
        for network in (actor.network, *targets, *critics.online.members, *critics.target.members):
            prepared = CoreNetwork.of(network)
            if prepared is None or not are_core_compatible(prepared.weights):
                return None
            found[network] = prepared
        return cls(actor, critics, max_grad_norm, found)

    @property
    def is_valid(self) -> bool:
        """True if all stored data addresses are still valid and no hooks are registered."""
        if has_step_hooks(self._actor.optimizer, self._critics.optimizer) or self._loads != self._loads_of_optimizers():
            return False
        return self._addresses == weight_addresses(self._found) and all(
            network.core_layers() is not None for network in self._networks
        )

    def convert(self, rows: Tensors, encode: Callable[[Tensor], Tensor], reward_scale: float) -> CoreBatch:
        """Convert batch rows to the tensors that the native core expects; ``encode`` scales actions to -1..1."""
        row = self._networks[0].row
        return CoreBatch(
            row(observation_of(rows, "obs.")).contiguous(),
            encode(rows["action"]).float().contiguous(),
            (reward_scale * rows["reward"]).float().contiguous(),
            row(observation_of(rows, "next_obs.")).contiguous(),
            (rows["discount"] * ~rows["terminated"]).float().contiguous(),
            rows["weight"].float().contiguous() if "weight" in rows else None,
        )

    def next_values(self, rows: CoreBatch, noise: Tensor, temperature: float = 0.0) -> Tensor:
        """Return the minimum target Q-value of each next action, plus temperature times entropy."""
        values = torch.empty(len(rows))
        seen = rows.next_observation.data_ptr()
        self._update.next_values(len(rows), seen, noise.data_ptr(), temperature, values.data_ptr())
        return values

    def learn_critics(self, rows: CoreBatch, next_value: Tensor, lr: float) -> tuple[dict[str, float], Array]:
        """Run one critic update; return metrics and absolute TD errors. No weights change if the loss is not finite."""
        for network in self._online_critics:
            network.set_learning_rate(lr)
        errors = torch.empty(len(rows))
        columns = [rows.observation, rows.action, rows.reward, rows.discount, next_value]
        weight = 0 if rows.weight is None else rows.weight.data_ptr()
        optimizer = self._critics.optimizer
        result = self._update.learn_critics(
            len(rows),
            [*addresses(columns), weight],
            clipping_arguments(optimizer, self._max_grad_norm),
            errors.data_ptr(),
        )
        loss, value, norm = read_result(optimizer, result, self._max_grad_norm)
        return {"loss/td": loss, "value/mean": value, "loss/gradient_norm": norm}, to_array(errors)

    def learn_actor(
        self, rows: CoreBatch, noise: Tensor, lr: float, temperature: float = 0.0, *, use_minimum: bool
    ) -> tuple[float, float]:
        """Run one actor update; return loss and entropy. Changes no weights if the loss is not finite.

        ``use_minimum`` selects the minimum Q-value over critics instead of the Q-value of the first critic.
        """
        self._trained_actor.set_learning_rate(lr)
        optimizer, seen = self._actor.optimizer, rows.observation.data_ptr()
        clipping = clipping_arguments(optimizer, self._max_grad_norm)
        result = self._update.learn_actor(len(rows), seen, noise.data_ptr(), temperature, use_minimum, clipping)
        loss, entropy, _ = read_result(optimizer, result, self._max_grad_norm)
        return loss, entropy

    def _loads_of_optimizers(self) -> tuple[int, int]:
        return self._actor.optimizer.loads, self._critics.optimizer.loads
