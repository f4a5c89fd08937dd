"""The contract of every learning algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import nn

from rl4sys.algorithms.actions import check_actions
from rl4sys.buffers.base import NOTHING, Batch, Buffer, BufferConfig, Demand, Provided
from rl4sys.config import Config
from rl4sys.errors import ConfigError
from rl4sys.networks.base import NetworkConfig
from rl4sys.networks.mlp import MLPConfig
from rl4sys.networks.native import ACTIVATIONS, compute_natively
from rl4sys.policy.base import Policy
from rl4sys.registry import BUFFERS
from rl4sys.spec import Columns, Spec, State

Metrics: TypeAlias = Mapping[str, float]

Backend: TypeAlias = Literal["auto", "torch", "native"]
"""What computes networks on a processor: auto takes the native core for those that it knows."""

Module = TypeVar("Module", bound=nn.Module)


class AlgorithmConfig(Config):
    """What every algorithm can be told."""

    name: str
    """Which algorithm: one of those in docs/algorithms.md, or the name a plugin registered."""


Options = TypeVar("Options", bound=AlgorithmConfig, covariant=True)  # noqa: PLC0105 - as read in every signature


@dataclass(frozen=True)
class Recipe(Generic[Options]):
    """Everything an algorithm is made from. `ConfigError` where it does not take the spec's actions."""

    spec: Spec
    options: Options
    networks: Mapping[str, NetworkConfig]
    buffer: BufferConfig
    seed: np.random.SeedSequence
    device: str = "cpu"
    backend: Backend = "auto"
    total_timesteps: int | None = None
    """Where schedules end; a live system has no such point."""
    warm: bool = False
    """Whether the policy starts from what was recorded, and not at random."""
    provided: Provided = NOTHING
    """What the host has for the buffer."""

    def __post_init__(self) -> None:
        check_actions(self.options.name, self.spec.action)

    def network(self, role: str) -> NetworkConfig:
        """The settings of the network for ``role``; a role left out of the config gets the defaults."""
        return self.networks.get(role) or MLPConfig()

    def place(self, module: Module) -> Module:
        """The module on the recipe's device, computed by the native core where that is wanted and can be."""
        module.to(torch.device(self.device))
        if self.backend == "torch" or (self.backend == "auto" and self.device != "cpu"):
            return module
        if not compute_natively(module) and self.backend == "native":
            raise ConfigError(
                f"experiment.backend is native, and the native core cannot compute the networks of {self.options.name} "
                f"on {self.device}: it knows fully connected layers with {', '.join(ACTIVATIONS)}, on cpu; use auto"
            )
        return module

    def make_buffer(self, demand: Demand, fitting: tuple[str, ...]) -> Buffer:
        """The configured buffer, if it is of a type the algorithm can learn from or a user's own.

        One whose batches mean what those of ``uniform`` do fits wherever that does. ``prioritized`` fits an algorithm
        that returns ``priority`` and weighs its rows.
        """
        alike = LIKE_UNIFORM if "uniform" in fitting else ()
        if self.buffer.type not in (*fitting, *alike) and self.buffer.type in SHIPPED_BUFFERS:
            raise ConfigError(
                f"buffer.type is {self.buffer.type!r}, which {self.options.name} cannot learn from; use {fitting[0]}"
            )
        buffer: Buffer = BUFFERS.get(self.buffer.type)(self.buffer, replace(demand, provided=self.provided))
        return buffer


SHIPPED_BUFFERS = ("trajectory", "uniform", "prioritized", "her", "sequence", "union")
LIKE_UNIFORM = ("her", "union")


@dataclass(frozen=True)
class Update:
    """What one update measured, and what the buffer should remember about the batch."""

    metrics: Metrics
    feedback: Columns = field(default_factory=dict)


class Algorithm(Protocol):
    """Turns batches into better policies. Knows no environment, file, thread, network or clock.

    ``steps`` is how much experience the learner has taken in so far; schedules are functions of it. The class
    is called with a `Recipe` and has, beside these methods, ``Config`` (its `AlgorithmConfig`), ``roles``
    (the networks it has, as named under ``network:`` in a config), ``usual_buffer`` (the ``buffer:`` block
    of a config that has none) and ``actions`` (the kinds of actions it takes; one without is tried with any). It may
    have ``optional_roles``, the networks that it has only where a config names them.
    """

    def make_buffer(self) -> Buffer:
        """An empty buffer of the kind this algorithm learns from."""

    def policy(self, steps: int) -> Policy:
        """The live policy: later updates may change how it acts."""

    def update(self, batch: Batch, steps: int) -> Update:
        """Learn from one batch."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...
