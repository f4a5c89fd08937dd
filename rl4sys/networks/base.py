"""Network protocols, and reproducible construction of networks."""

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
from rl4sys.networks.body_writer import Body, to_array
from rl4sys.networks.translate import with_named_observations
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Spec, encoded_size
from rl4sys.trajectory import OBSERVATION

Tensors: TypeAlias = Mapping[str, Tensor]
"""Observations by name, batched along the first axis."""

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
    "concat_observations",
    "count_parameters",
    "export",
    "flatten",
    "memory_size",
    "memory_size_of",
    "observation_names",
    "observation_of",
    "to_array",
]


class NetworkConfig(Config):
    """Options that all networks have."""

    type: str = "mlp"
    """Network type: mlp, cnn, gru, lstm, transformer, items, dict, or a name that a plugin registered."""


@dataclass(frozen=True)
class Blueprint:
    """Inputs and outputs that a network must have. ``output_gain`` scales the initial weights of its last layer.

    ``allow_memory`` permits recurrent networks; only algorithms that train on sequences set this flag.
    """

    spec: Spec
    outputs: int
    output_gain: float = 1.0
    allow_memory: bool = False


@runtime_checkable
class Exportable(Protocol):
    """Network that can be exported to clients without torch."""

    def export(self, prefix: str) -> Body:
        """Return the network as operations of a policy program; weight names start with ``prefix``."""


@runtime_checkable
class Recurrent(Protocol):
    """Recurrent network. Its recurrent state (memory) is a float32 vector, zero at the start of an episode.

    ``forward`` runs one step from a zero state. The exported program has the same recurrent state.
    """

    memory_size: int
    """Length of the recurrent state; 0 if the network is not recurrent."""

    def step(self, observation: Tensors, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step per row; return outputs (N, outputs) and the next recurrent state (N, memory_size)."""

    def sequence(self, observation: Tensors, memory: Tensor) -> Tensor:
        """Run T steps of B sequences; return outputs (B, T, outputs). ``memory`` is the initial recurrent state."""


def memory_size(network: nn.Module) -> int:
    """Return the length of the recurrent state of a network; 0 if the network is not recurrent."""
    return network.memory_size if isinstance(network, Recurrent) else 0


def build_network(config: NetworkConfig, blueprint: Blueprint, seed: int) -> nn.Module:
    """Build a network whose initial weights depend only on ``seed``.

    The forward method of the network maps `Tensors` to outputs of shape (N, outputs). The state of the global torch
    generator does not change.
    """
    # Torch layers draw their initial weights from a generator shared by the whole process.
    with _building, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = cast(nn.Module, NETWORKS.get(config.type)(config, blueprint))
    if memory_size(network) and not blueprint.allow_memory:
        raise ConfigError(
            f"a network of type {config.type} is recurrent, but this algorithm learns from single steps, not from "
            "sequences; use a network that is not recurrent, such as mlp, or a transformer on stacked observations"
        )
    return with_named_observations(network, blueprint.spec)


def memory_size_of(config: NetworkConfig, blueprint: Blueprint) -> int:
    """Return the length of a network's recurrent state, computed without allocating the weights."""
    with torch.device("meta"), _NoInitialization():
        return memory_size(build_network(config, blueprint, seed=0))


def count_parameters(config: NetworkConfig, blueprint: Blueprint) -> int:
    """Return the number of parameters of a network, computed without allocating the parameters."""
    try:
        # Tensors on the meta device have a shape but no data.
        with torch.device("meta"), _NoInitialization():
            network = build_network(config, blueprint, seed=0)
    except (RuntimeError, TypeError) as problem:
        raise ConfigError(
            f"the size of the {config.type} network cannot be computed: {str(problem).partition(chr(10))[0]}; "
            "make the network smaller, or, in your own network class, do not read weights in __init__"
        ) from problem
    return sum(parameter.numel() for parameter in network.parameters())


class _NoInitialization(TorchFunctionMode):
    """Context that skips weight initialization, which is the slowest step on the meta device."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__module__", "") == nn.init.__name__:
            return (*args, *(kwargs or {}).values())[0]
        return function(*args, **(kwargs or {}))


def action_outputs(spec: Spec) -> int:
    """Return the number of actor outputs: one per discrete action or per continuous action dimension."""
    return encoded_size(spec.action)


def export(network: nn.Module, prefix: str) -> Body:
    """Export the network as operations of a policy program. Raises `ExportError` if it has no ``export`` method."""
    if not isinstance(network, Exportable):
        raise ExportError(
            f"{type(network).__name__} has its own forward code and no export(prefix) method, so clients cannot "
            "run it without torch. Add an export method, register a function that returns a plain nn.Sequential, or "
            "set `inference: remote` in the clients to let the server act"
        )
    return network.export(prefix)


def flatten(observation: Tensors, spec: Spec) -> Tensor:
    """Concatenate all observations except the mask to one vector per row, like `policy.snapshot_policy.flat_rows`."""
    return concat_observations(observation, observation_names(spec))


def observation_names(spec: Spec) -> list[str]:
    """Return the names of all observations except the mask, in order."""
    return [name for name in spec.observation if name != MASK]


def concat_observations(observation: Tensors, names: Sequence[str]) -> Tensor:
    """Concatenate the named observations to one vector per row; ``names`` must not be empty."""
    rows = [observation[name].reshape(len(observation[name]), -1).float() for name in names]
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def observation_of(columns: Tensors, prefix: str = OBSERVATION) -> Tensors:
    """Select the columns that start with ``prefix``, such as ``obs.``, and strip it from their names."""
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
