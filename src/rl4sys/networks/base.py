"""The contract of networks, and how they are built without touching anybody else's random numbers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor, nn

from rl4sys.config import Config
from rl4sys.errors import ExportError
from rl4sys.policy.program import Operation
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Array, Columns, Spec

Tensors: TypeAlias = Mapping[str, Tensor]
"""Observations by name, one row each."""

_building = threading.Lock()


class NetworkConfig(Config):
    """What every network can be told."""

    type: str = "mlp"
    """Which network: mlp, or the name a plugin registered."""


@dataclass(frozen=True)
class Blueprint:
    """What a network must take and give; ``output_gain`` scales the initial weights of its last layer."""

    spec: Spec
    outputs: int
    output_gain: float = 1.0


@dataclass(frozen=True)
class Body:
    """A network as operations of a policy program, with the weights they name."""

    operations: tuple[Operation, ...]
    weights: Columns


@runtime_checkable
class Exportable(Protocol):
    """A network that can be run by clients, without torch."""

    def export(self, prefix: str) -> Body:
        """Itself as operations; its weights are named after ``prefix``."""


def build_network(config: NetworkConfig, blueprint: Blueprint, seed: int) -> nn.Module:
    """A network whose initial weights depend on ``seed`` alone; forward takes `Tensors`, gives (N, outputs)."""
    # Layers of torch draw their first weights from a generator that the whole process shares.
    with _building, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return cast(nn.Module, NETWORKS.get(config.type)(config, blueprint))


def export(network: nn.Module, prefix: str) -> Body:
    if not isinstance(network, Exportable):
        raise ExportError(
            f"{type(network).__name__} has no export(prefix) method, so clients cannot run it without torch; "
            "give it one, or let it act where torch is"
        )
    return network.export(prefix)


def flatten(observation: Tensors, spec: Spec) -> Tensor:
    """All observations but the mask side by side, one flat row each, as `policy.portable.flat_rows` does."""
    rows = [observation[name].reshape(len(observation[name]), -1).float() for name in spec.observation if name != MASK]
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def observation_of(columns: Tensors, prefix: str) -> Tensors:
    """The observations among the columns of a batch: those starting with ``obs.``, say, by their own names."""
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}


def to_array(tensor: Tensor) -> Array:
    """A copy that later updates do not change."""
    return tensor.detach().cpu().numpy().copy()
