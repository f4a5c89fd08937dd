"""Protocol of learning algorithms, with their setup and update result."""

from __future__ import annotations

import zlib
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
from rl4sys.networks.base import Blueprint, NetworkConfig, action_outputs, build_network
from rl4sys.networks.mlp import MLPConfig
from rl4sys.networks.native import ACTIVATIONS, compute_natively
from rl4sys.policy.base import Policy
from rl4sys.registry import BUFFERS
from rl4sys.spec import Columns, Spec, State

Metrics: TypeAlias = Mapping[str, float]

Backend: TypeAlias = Literal["auto", "torch", "native"]
"""Backend that computes networks on the CPU; auto uses the native core for supported networks, else torch."""

Module = TypeVar("Module", bound=nn.Module)


class AlgorithmConfig(Config):
    """Options that all algorithms have."""

    name: str
    """Name of the algorithm, as listed in docs/algorithms.md or registered by a plugin."""


Options = TypeVar("Options", bound=AlgorithmConfig, covariant=True)  # noqa: PLC0105 - short for signatures


@dataclass(frozen=True)
class PlacedModule:
    """Module of an algorithm; ``is_native`` is True if the native core computes all its networks in training."""

    module: nn.Module
    is_native: bool


@dataclass(frozen=True)
class AlgorithmSetup(Generic[Options]):
    """Spec, configs, seed and device of an algorithm: the constructor argument of all algorithm classes.

    Raises `ConfigError` if the algorithm does not support the action space.
    """

    spec: Spec
    options: Options
    networks: Mapping[str, NetworkConfig]
    buffer: BufferConfig
    seed: np.random.SeedSequence
    device: str = "cpu"
    backend: Backend = "auto"
    total_timesteps: int | None = None
    """Total number of environment steps of the run, for schedules; None in live training, which has no fixed length."""
    warm: bool = False
    """True if a warm start pretrains the policy, so that the initial phase of random actions is skipped."""
    resources: BufferResources = NO_RESOURCES
    """Objects that the host provides to the buffer."""
    placed: list[PlacedModule] = field(default_factory=list, compare=False)
    """Modules that `place` was called with."""

    def __post_init__(self) -> None:
        check_actions(self.options.name, self.spec.action)

    def network(self, role: str) -> NetworkConfig:
        """Return the network config of ``role``, or the default MLP if the config does not contain the role."""
        return self.networks.get(role) or MLPConfig()

    def build_network(self, role: str, outputs: int | None = None) -> nn.Module:
        """Build the network of ``role`` on the configured device. Its weights depend on the seed and the role.

        It has ``outputs`` outputs, by default those of an actor: one per discrete action or action dimension.
        """
        blueprint = Blueprint(self.spec, action_outputs(self.spec) if outputs is None else outputs)
        own_seed = np.random.SeedSequence(
            self.seed.entropy, spawn_key=(*self.seed.spawn_key, zlib.crc32(role.encode()))
        )
        return self.place(build_network(self.network(role), blueprint, int(own_seed.generate_state(1)[0])))

    def place(self, module: Module) -> Module:
        """Move ``module`` to the configured device. If the backend setting allows it, let the native core compute it.

        Raises `ConfigError` if the backend is native but the core does not support the module.
        """
        module.to(torch.device(self.device))
        uses_torch = self.backend == "torch" or (self.backend == "auto" and self.device != "cpu")
        is_native = not uses_torch and compute_natively(module)
        self.placed.append(PlacedModule(module, is_native))
        if not is_native and self.backend == "native":
            raise ConfigError(
                "experiment.backend is 'native', but the native core cannot compute the networks of "
                f"{self.options.name} on device {self.device}. The core supports only fully connected layers with the "
                f"activations {', '.join(ACTIVATIONS)} on the CPU. Set experiment.backend=auto"
            )
        return module

    def make_buffer(self, demand: Demand, fitting: tuple[str, ...]) -> Buffer:
        """Build the configured buffer. Raises `ConfigError` if the algorithm cannot learn from this buffer type.

        ``fitting`` lists the supported buffer types. If it contains ``uniform``, types that return the same batch
        columns are accepted too. Buffer types of plugins are always accepted. An algorithm may list ``prioritized``
        only if it returns ``priority`` as feedback and multiplies the loss of each row by ``weight``.
        """
        same = SAME_BATCHES_AS_UNIFORM if "uniform" in fitting else ()
        if self.buffer.type not in (*fitting, *same) and BUFFERS.is_shipped(self.buffer.type):
            raise ConfigError(
                f"buffer.type is {self.buffer.type!r}, but {self.options.name} does not support this buffer type; "
                f"use {fitting[0]!r}"
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
    """Learning algorithm that improves a policy from batches. Uses no environments, files, threads or clocks.

    The class is called with an `AlgorithmSetup`. Besides these methods, it has the attributes ``Config`` (subclass of
    `AlgorithmConfig`), ``roles`` (names of its networks in the ``network:`` block of a config), ``default_buffer``
    (defaults of the ``buffer:`` block) and ``actions`` (supported kinds of action spaces; any kind if missing). It may
    have ``optional_roles``: names of networks that are built only if the config contains them.

    The argument ``steps`` is the number of environment steps that the learner has received so far, for schedules.
    """

    def make_buffer(self) -> Buffer:
        """Return a new, empty buffer, whose batches are passed to `update`."""

    def policy(self, steps: int) -> Policy:
        """Return the live policy; later updates may change its actions."""

    def update(self, batch: Batch, steps: int) -> Update:
        """Update the networks with one batch; return metrics and feedback for the buffer."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...
