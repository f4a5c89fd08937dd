"""Protocol of learning algorithms, with their setup and update result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import nn

from rl4sys.algorithms.actions import check_actions
from rl4sys.buffers.base import NO_RESOURCES, Batch, Buffer, BufferConfig, BufferResources, Demand
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
"""Compute backend on the CPU: auto uses the native core for the networks it supports."""

Module = TypeVar("Module", bound=nn.Module)


class AlgorithmConfig(Config):
    """Options of every algorithm."""

    name: str
    """Name of the algorithm: one in docs/algorithms.md, or one that a plugin registered."""


Options = TypeVar("Options", bound=AlgorithmConfig, covariant=True)  # noqa: PLC0105 - short for signatures


@dataclass(frozen=True)
class AlgorithmSetup(Generic[Options]):
    """Constructor argument of every algorithm. Raises `ConfigError` for actions that the algorithm does not support."""

    spec: Spec
    options: Options
    networks: Mapping[str, NetworkConfig]
    buffer: BufferConfig
    seed: np.random.SeedSequence
    device: str = "cpu"
    backend: Backend = "auto"
    total_timesteps: int | None = None
    """Length of the training, for schedules; None in live training, which has no end."""
    warm: bool = False
    """True if the policy is pretrained by a warm start, so random initial actions are skipped."""
    resources: BufferResources = NO_RESOURCES
    """Objects that the host provides to the buffer."""

    def __post_init__(self) -> None:
        check_actions(self.options.name, self.spec.action)

    def network(self, role: str) -> NetworkConfig:
        """Return the network config of ``role``; the default MLP if the config does not name the role."""
        return self.networks.get(role) or MLPConfig()

    def place(self, module: Module) -> Module:
        """Move ``module`` to the configured device, and run it in the native core if the backend allows that."""
        module.to(torch.device(self.device))
        if self.backend == "torch" or (self.backend == "auto" and self.device != "cpu"):
            return module
        if not compute_natively(module) and self.backend == "native":
            raise ConfigError(
                f"experiment.backend is native, but the native core cannot compute the networks of {self.options.name} "
                f"on {self.device}: the core supports fully connected layers with {', '.join(ACTIVATIONS)} on the CPU; "
                "set experiment.backend=auto"
            )
        return module

    def make_buffer(self, demand: Demand, fitting: tuple[str, ...]) -> Buffer:
        """Build the configured buffer. Raises `ConfigError` if the algorithm cannot learn from this buffer type.

        ``fitting`` lists the supported buffer types. If ``uniform`` is listed, types with the same batches are accepted
        too. Plugin types are always accepted. List ``prioritized`` only if the algorithm returns ``priority`` as
        feedback and multiplies row losses by ``weight``.
        """
        same = SAME_BATCHES_AS_UNIFORM if "uniform" in fitting else ()
        if self.buffer.type not in (*fitting, *same) and BUFFERS.is_shipped(self.buffer.type):
            raise ConfigError(
                f"buffer.type is {self.buffer.type!r}, but {self.options.name} cannot learn from it; use {fitting[0]}"
            )
        buffer: Buffer = BUFFERS.get(self.buffer.type)(self.buffer, replace(demand, resources=self.resources))
        return buffer


SAME_BATCHES_AS_UNIFORM = ("her", "union")


@dataclass(frozen=True)
class Update:
    """Result of one update: metrics, and per-row feedback for the buffer such as priorities."""

    metrics: Metrics
    feedback: Columns = field(default_factory=dict)


class Algorithm(Protocol):
    """Improves a policy from batches. Independent of environments, files, threads, connections and clocks.

    ``steps`` is the number of steps the learner has received so far; schedules are functions of it. The class is
    called with an `AlgorithmSetup`. Beside these methods it has the attributes ``Config`` (its `AlgorithmConfig`),
    ``roles`` (its networks, as named under ``network:`` in a config), ``default_buffer`` (defaults of the ``buffer:``
    block) and ``actions`` (the supported action kinds; any if missing). It may have ``optional_roles``: networks
    that exist only if the config names them.
    """

    def make_buffer(self) -> Buffer:
        """Return an empty buffer to learn from."""

    def policy(self, steps: int) -> Policy:
        """Return the live policy; later updates may change its actions."""

    def update(self, batch: Batch, steps: int) -> Update:
        """Learn from one batch."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...
