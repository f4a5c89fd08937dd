"""Conversion of torch networks and optimizers to the arguments of updates in the native core."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from rl4sys.algorithms.core_optimizers import CoreAdam, CoreRMSprop
from rl4sys.algorithms.optimization import AUTO, GradNorm, save_running_norm
from rl4sys.networks.native import CoreLayers, HasCoreLayers, addresses

if TYPE_CHECKING:
    from rl4sys._core import FrozenNetwork, TrainableNetwork


CoreOptimizer: TypeAlias = CoreAdam | CoreRMSprop


@dataclass(frozen=True)
class CoreNetwork:
    """Layers of a network and their weights, in the order that the core expects."""

    layers: CoreLayers
    weights: list[nn.Parameter]

    @classmethod
    def of(cls, network: nn.Module) -> CoreNetwork | None:
        """Wrap a network; return None if torch must compute the network, for example because of forward hooks.

        An inherited ``core_layers`` method is ignored, because a subclass may compute more than its base class.
        """
        declared = "core_layers" in vars(type(network))
        found = network.core_layers() if declared and isinstance(network, HasCoreLayers) else None
        if found is None:
            return None
        trained = {id(parameter) for parameter in network.parameters() if parameter.requires_grad}
        return cls(*found) if trained == {id(weight) for weight in found[1]} else None


def weight_addresses(networks: Iterable[CoreNetwork]) -> list[int]:
    """Return the data addresses of all weights; an address changes if a parameter is moved to other storage."""
    return [address for network in networks for address in addresses(network.weights)]


def trainable_network(network: CoreNetwork, optimizer: CoreOptimizer, group: int = 0) -> TrainableNetwork:
    """Return a network whose torch weights and optimizer state the core updates in place."""
    from rl4sys._core import TrainableNetwork

    parameters = [optimizer.addresses_of(weight) for weight in network.weights]
    return TrainableNetwork(network.layers.core, parameters, optimizer.core_settings(group))


def frozen_network(network: CoreNetwork) -> FrozenNetwork:
    """Return a network whose torch weights the core reads in place but never changes."""
    from rl4sys._core import FrozenNetwork

    return FrozenNetwork(network.layers.core, addresses(network.weights))


def fits_core(algorithm: object, accumulate: int) -> bool:
    """Return True if the native core implements the update of this algorithm.

    The class itself must set ``fits_core``; an inherited value is ignored, because a subclass may compute more. Updates
    with gradient accumulation (``accumulate`` above 1) run in torch.
    """
    return accumulate == 1 and bool(vars(type(algorithm)).get("fits_core", False))


def has_step_hooks(*optimizers: CoreOptimizer) -> bool:
    """Return True if an optimizer has step hooks, which the core would not call."""
    return any(one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks for one in optimizers)


def read_result(optimizer: CoreAdam, result: Sequence[float], max_grad_norm: GradNorm) -> tuple[float, float, float]:
    """Unpack the result of an update in the core into loss, metric and gradient norm, and save the running norm.

    If the norm is not finite, the loss is NaN.
    """
    loss, measured, norm, mean, count = result
    if not math.isfinite(norm):
        return math.nan, measured, norm
    if max_grad_norm == AUTO:
        save_running_norm(optimizer, mean, int(count))
    return loss, measured, norm
