"""Networks and their optimisers, as updates in the native core take them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from rl4sys.algorithms.adam import CoreAdam, CoreRMSprop
from rl4sys.algorithms.numerics import AUTO, GradNorm, remember_usual_norm
from rl4sys.networks.native import CoreLayers, InCore, addresses

if TYPE_CHECKING:
    from rl4sys._core import FrozenNetwork, LearntNetwork


CoreOptimizer: TypeAlias = CoreAdam | CoreRMSprop


@dataclass(frozen=True)
class CoreNetwork:
    """Layers, and their weights in the order that the core knows them by."""

    layers: CoreLayers
    weights: list[nn.Parameter]

    @classmethod
    def of(cls, network: nn.Module) -> CoreNetwork | None:
        """None where torch has to compute it, or where others look into it.

        A class derived from one that the core knows may compute more: it has to say itself that it is known.
        """
        declared = "in_core" in vars(type(network))
        found = network.in_core() if declared and isinstance(network, InCore) else None
        if found is None:
            return None
        learnt = {id(parameter) for parameter in network.parameters() if parameter.requires_grad}
        return cls(*found) if learnt == {id(weight) for weight in found[1]} else None


def places(networks: Iterable[CoreNetwork]) -> list[int]:
    """Where their weights are now: a parameter can be given other storage."""
    return [address for network in networks for address in addresses(network.weights)]


def learnt_network(network: CoreNetwork, optimizer: CoreOptimizer, group: int = 0) -> LearntNetwork:
    """The core moves the weights, and what the optimiser keeps of them, where torch has them."""
    from rl4sys._core import LearntNetwork

    places = [optimizer.place(weight) for weight in network.weights]
    return LearntNetwork(network.layers.core, places, optimizer.core_settings(group))


def frozen_network(network: CoreNetwork) -> FrozenNetwork:
    """The core computes with the weights where torch has them, and leaves them as they are."""
    from rl4sys._core import FrozenNetwork

    return FrozenNetwork(network.layers.core, addresses(network.weights))


def fits_core(algorithm: object) -> bool:
    """Whether its very class says that the core knows all it computes: one derived from it may compute more."""
    return bool(vars(type(algorithm)).get("fits_core", False))


def watched(*optimizers: CoreOptimizer) -> bool:
    """Whether someone wants to see steps as they are taken, which the core would not show."""
    return any(one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks for one in optimizers)


def heard(optimizer: CoreAdam, told: Sequence[float], max_grad_norm: GradNorm) -> tuple[float, float, float]:
    """Loss, a measurement and the gradient's length, of what an update tells; what is usual is remembered.

    Where the length is not finite, nor is the loss.
    """
    loss, measured, norm, mean, count = told
    if not math.isfinite(norm):
        return math.nan, measured, norm
    if max_grad_norm == AUTO:
        remember_usual_norm(optimizer, mean, int(count))
    return loss, measured, norm
