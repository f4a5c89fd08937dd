"""The contract of networks, and how they are built without touching anybody else's random numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rl4sys.config import Config
from rl4sys.errors import ConfigError, ExportError
from rl4sys.networks.translate import Translated, is_plain
from rl4sys.networks.writing import Body, to_array
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Spec, numbers_of

Tensors: TypeAlias = Mapping[str, Tensor]
"""Observations by name, one row each."""

_building = threading.Lock()

__all__ = [
    "Blueprint",
    "Body",
    "Exportable",
    "NetworkConfig",
    "Recurrent",
    "Tensors",
    "action_outputs",
    "build_network",
    "count_parameters",
    "export",
    "flatten",
    "memory_size",
    "memory_size_of",
    "observation_of",
    "seen_names",
    "side_by_side",
    "to_array",
]


class NetworkConfig(Config):
    """What every network can be told."""

    type: str = "mlp"
    """Which network: mlp, cnn, gru, lstm, transformer, items, dict, or the name a plugin registered."""


@dataclass(frozen=True)
class Blueprint:
    """What a network must take and give; ``output_gain`` scales the initial weights of its last layer.

    Only an algorithm that learns from sequences lets it remember.
    """

    spec: Spec
    outputs: int
    output_gain: float = 1.0
    may_remember: bool = False


@runtime_checkable
class Exportable(Protocol):
    """A network that can be run by clients, without torch."""

    def export(self, prefix: str) -> Body:
        """Itself as operations; its weights are named after ``prefix``."""


@runtime_checkable
class Recurrent(Protocol):
    """A network that remembers. Memory is float32, zeros at an episode's start.

    Its forward takes one step from zeros. The program that it exports has the same memory.
    """

    memory_size: int
    """Numbers that it remembers; 0 where it happens to remember nothing."""

    def step(self, observation: Tensors, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step of each row: outputs (N, outputs) and the memory after it, from that before, (N, memory_size)."""

    def sequence(self, observation: Tensors, memory: Tensor) -> Tensor:
        """T steps at once: outputs (B, T, outputs) from observations (B, T, ...) and the memory before the first."""


def memory_size(network: nn.Module) -> int:
    """Numbers that the network remembers from step to step; 0 if none."""
    return network.memory_size if isinstance(network, Recurrent) else 0


def build_network(config: NetworkConfig, blueprint: Blueprint, seed: int) -> nn.Module:
    """A network whose initial weights depend on ``seed`` alone; forward takes `Tensors`, gives (N, outputs)."""
    # Layers of torch draw their first weights from a generator that the whole process shares.
    with _building, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = cast(nn.Module, NETWORKS.get(config.type)(config, blueprint))
    if memory_size(network) and not blueprint.may_remember:
        raise ConfigError(
            f"a network of type {config.type} remembers, and this algorithm learns from single steps, not sequences; "
            "use a network without memory for it, such as mlp or, over the last few observations, transformer"
        )
    return Translated(network, blueprint.spec) if is_plain(network) else network


def memory_size_of(config: NetworkConfig, blueprint: Blueprint) -> int:
    """Numbers that a network of these settings would remember, told without making its weights."""
    with torch.device("meta"), _NoInitialization():
        return memory_size(build_network(config, blueprint, seed=0))


def count_parameters(config: NetworkConfig, blueprint: Blueprint) -> int:
    """How many weights `build_network` would make, told at once and without making them."""
    try:
        # On that device tensors have a shape and nothing in it.
        with torch.device("meta"), _NoInitialization():
            network = build_network(config, blueprint, seed=0)
    except (RuntimeError, TypeError) as problem:
        raise ConfigError(
            f"the {config.type} network cannot be counted before it is built: {str(problem).partition(chr(10))[0]}; "
            "make it smaller, or, if it is your own, have it not look at its weights as it is built"
        ) from problem
    return sum(parameter.numel() for parameter in network.parameters())


class _NoInitialization(TorchFunctionMode):
    """Leaves out what takes most of the time of building a network that has no weights."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__module__", "") == nn.init.__name__:
            return (*args, *(kwargs or {}).values())[0]
        return function(*args, **(kwargs or {}))


def action_outputs(spec: Spec) -> int:
    """What a network gives to describe one action: a number for each choice, or for each element."""
    return numbers_of(spec.action)


def export(network: nn.Module, prefix: str) -> Body:
    """The network as operations of a policy program, by its own account."""
    if not isinstance(network, Exportable):
        raise ExportError(
            f"{type(network).__name__} computes by code of its own and has no export(prefix) method, so clients cannot "
            "run it without torch. Give it one, or register a function that returns a plain nn.Sequential; "
            "`inference: remote` still serves it"
        )
    return network.export(prefix)


def flatten(observation: Tensors, spec: Spec) -> Tensor:
    """All observations but the mask side by side, one flat row each, as `policy.portable.flat_rows` does."""
    return side_by_side(observation, seen_names(spec))


def seen_names(spec: Spec) -> list[str]:
    """The observations of a row, in their order: all but the mask."""
    return [name for name in spec.observation if name != MASK]


def side_by_side(observation: Tensors, names: Sequence[str]) -> Tensor:
    """The named observations, of which there is one at least, one flat row each."""
    rows = [observation[name].reshape(len(observation[name]), -1).float() for name in names]
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def observation_of(columns: Tensors, prefix: str) -> Tensors:
    """The observations among the columns of a batch: those starting with ``obs.``, say, by their own names."""
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
