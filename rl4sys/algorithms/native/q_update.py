"""DQN updates in the native core.

The torch code in `rl4sys.algorithms.dqn` is the reference: the same rows give the same weights up to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rl4sys.algorithms.core_optimizers import CoreAdam, are_core_compatible
from rl4sys.algorithms.native.network import (
    CoreNetwork,
    frozen_network,
    has_step_hooks,
    read_result,
    trainable_network,
    weight_addresses,
)
from rl4sys.algorithms.optimization import GradNorm, clipping_arguments
from rl4sys.networks.base import Tensors, observation_of, to_array
from rl4sys.networks.native import HasCoreLayers, addresses
from rl4sys.spec import MASK, Array


class CoreQUpdate:
    """DQN update in the core, prepared once and used while the stored data addresses are valid."""

    def __init__(
        self, critic: CoreNetwork, target: CoreNetwork, optimizer: CoreAdam, networks: Sequence[HasCoreLayers]
    ) -> None:
        from rl4sys._core import QUpdate

        self._optimizer, self._networks, self._loads = optimizer, networks, optimizer.loads
        self._found = (critic, target)
        self._addresses = weight_addresses(self._found)
        self._critic = trainable_network(critic, optimizer)
        self._update = QUpdate(self._critic, frozen_network(target))

    @classmethod
    def of(cls, critic: nn.Module, target: nn.Module, optimizer: CoreAdam) -> CoreQUpdate | None:
        """Prepare updates in the core; returns None if torch has to compute a network or if hooks are registered."""
        online, frozen = CoreNetwork.of(critic), CoreNetwork.of(target)
        if online is None or frozen is None or has_step_hooks(optimizer):
            return None
        networks = [network for network in (critic, target) if isinstance(network, HasCoreLayers)]
        return (
            cls(online, frozen, optimizer, networks)
            if are_core_compatible([*online.weights, *frozen.weights])
            else None
        )

    @property
    def is_valid(self) -> bool:
        """True if all stored data addresses are still valid and no hooks are registered."""
        if (
            has_step_hooks(self._optimizer)
            or self._loads != self._optimizer.loads
            or self._addresses != weight_addresses(self._found)
        ):
            return False
        return all(network.core_layers() is not None for network in self._networks)

    def learn(
        self, rows: Tensors, lr: float, max_grad_norm: GradNorm, *, double: bool
    ) -> tuple[dict[str, float], Array]:
        """Run one update; return metrics and absolute TD errors. Changes no weights if the loss is not finite."""
        self._critic.set_learning_rate(lr)
        row, reward = self._networks[0].row, rows["reward"].float().contiguous()
        seen = [row(observation_of(rows, prefix)).contiguous() for prefix in ("obs.", "next_obs.")]
        discount = (rows["discount"] * ~rows["terminated"]).float().contiguous()
        errors = torch.empty(len(reward))
        legal, weight = rows.get(f"next_obs.{MASK}"), rows.get("weight")
        given = [seen[0], rows["action"].long().contiguous(), reward, discount, seen[1]]
        legal = None if legal is None else legal.contiguous()
        weight = None if weight is None else weight.float().contiguous()
        more = [0 if column is None else column.data_ptr() for column in (legal, weight)]
        clipping = clipping_arguments(self._optimizer, max_grad_norm)
        result = self._update.learn(len(reward), [*addresses(given), *more], double, clipping, errors.data_ptr())
        loss, value, norm = read_result(self._optimizer, result, max_grad_norm)
        return {"loss/td": loss, "value/mean": value, "loss/gradient_norm": norm}, to_array(errors)
