"""Size of a learner: network parameters, and the RAM and disk its buffer needs when full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup
from rl4sys.buffers.base import BufferBytes, BufferConfig, space_bytes
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, algorithm_setup
from rl4sys.machine import format_bytes
from rl4sys.networks.base import Blueprint, action_outputs, count_parameters
from rl4sys.registry import ALGORITHMS, BUFFERS
from rl4sys.spec import Spec


@dataclass(frozen=True)
class LearnerCost:
    """Number of network parameters and buffer size of a Learner."""

    parameters: int
    """Number of network parameters, counted once per role, without target networks and optimizer state."""
    buffer_bytes: int
    """Size of the full buffer in bytes, RAM and disk together."""
    disk_bytes: int = 0
    """Part of ``buffer_bytes`` on disk."""


def learner_cost(spec: Spec, config: LearnerConfig) -> LearnerCost:
    """Compute parameter count and buffer size without building the Learner, so that hosts can enforce limits."""
    setup = algorithm_setup(spec, config, np.random.SeedSequence(0))
    counts = [count_parameters(setup.network(role), needed) for role, needed in _blueprints(setup).items()]
    buffer = _buffer_bytes(spec, config.buffer)
    return LearnerCost(sum(counts), buffer.ram + buffer.disk, buffer.disk)


_FILL = 0.8
"""Share of the available RAM that a suggested buffer may use; the rest is for networks and environments."""


@dataclass(frozen=True)
class BufferFootprint:
    """RAM that the buffer of a learner needs."""

    spec: Spec
    settings: LearnerConfig
    cost: LearnerCost

    @property
    def memory_bytes(self) -> int:
        """RAM in bytes that the full buffer needs."""
        return self.cost.buffer_bytes - self.cost.disk_bytes

    def remaining_bytes(self, steps: int) -> int:
        """Return the RAM in bytes that a buffer with ``steps`` stored steps will still allocate."""
        return int(self.memory_bytes * max(0.0, 1 - steps / self.settings.buffer.size))

    def check(self, available: int | None) -> None:
        """Raise `ConfigError` if the full buffer does not fit into ``available`` bytes of RAM; None means unknown.

        Without this check, the system would kill the process hours later, when the buffer has grown.
        """
        if available is None or self.memory_bytes <= available:
            return
        needed, left = format_bytes(self.memory_bytes), format_bytes(available)
        raise ConfigError(
            f"the buffer needs {needed} of RAM when full, but only {left} are available; {self.advice(available)}"
        )

    def advice(self, available: int) -> str:
        """Suggest buffer settings that fit, written as command line overrides."""
        fitting = [*self._smaller(available), *self._other_storage(available)]
        if not fitting:
            return "lower buffer.size or the sizes of its pools, or use a machine with more RAM"
        return f"settings that fit: {', or '.join(fitting)}"

    def fitting_size(self, available: int | None, max_bytes: int | None = None) -> int:
        """Return the largest buffer size, at most the configured one, that leaves RAM for networks and environments.

        ``max_bytes`` limits RAM and disk together. Returns 0 if no size fits.
        """
        size, share = int(self.settings.buffer.size), self._share(available, max_bytes)
        # A round number is easy to type. RAM grows with the size, but not always linearly.
        size = size if share >= 1 else _rounded(int(size * share))
        while size > 0 and self._resized(size)._share(available, max_bytes) < 1:
            size = _rounded(size // 2)
        return size

    def _share(self, available: int | None, max_bytes: int | None = None) -> float:
        """Return the ratio of allowed to required bytes; the buffer fits if the ratio is at least 1.

        Of the ratios for RAM and for RAM plus disk, the smaller one is returned.
        """
        ram = math.inf if available is None else int(_FILL * available)
        both = math.inf if max_bytes is None else max_bytes
        return min(ram / max(self.memory_bytes, 1), both / max(self.cost.buffer_bytes, 1))

    def _smaller(self, available: int) -> Iterator[str]:
        size = self.fitting_size(available)
        if 0 < size < self.settings.buffer.size:
            yield f"buffer.size={size} ({format_bytes(self._resized(size).memory_bytes)})"

    def _other_storage(self, available: int) -> Iterator[str]:
        """Suggest ways to store the same number of steps in less RAM."""
        for name, value, where in (("unstack", True, " if images are stacked frames"), ("storage", "disk", "")):
            if getattr(self.settings.buffer, name, value) != value and self._memory(**{name: value}) <= available:
                yield f"buffer.{name}={str(value).lower()}{where} ({format_bytes(self._memory(**{name: value}))})"

    def _memory(self, **changes: Any) -> int:
        return self._changed(**changes).memory_bytes

    def _resized(self, size: int) -> BufferFootprint:
        return self._changed(size=size)

    def _changed(self, **changes: Any) -> BufferFootprint:
        buffer: BufferConfig = self.settings.buffer.model_copy(update=changes)
        settings: LearnerConfig = self.settings.model_copy(update={"buffer": buffer})
        return buffer_footprint(self.spec, settings)


def buffer_footprint(spec: Spec, settings: LearnerConfig) -> BufferFootprint:
    """Return the RAM footprint of the buffer configured in ``settings``."""
    return BufferFootprint(spec, settings, learner_cost(spec, settings))


def choose_size(needs: BufferFootprint, available: int | None, max_bytes: int | None = None) -> tuple[int, str]:
    """Choose the buffer size for ``buffer.size: auto``; return the size and a message that explains the choice.

    Raises `ConfigError` if no size fits.
    """
    largest, size = int(needs.settings.buffer.size), needs.fitting_size(available, max_bytes)
    limits = [] if available is None else [f"{format_bytes(available)} of RAM are available"]
    limits += [] if max_bytes is None else [f"the maximum is {format_bytes(max_bytes)}"]
    why = " and ".join(limits) or "the available RAM is unknown"
    if size == 0:
        raise ConfigError(f"buffer.size is auto, but no buffer fits: {why}; use a machine with more RAM")
    if size == largest:
        return size, f"buffer.size: auto selects {size:,} steps, the default of {needs.settings.algorithm.name}; {why}"
    needed = format_bytes(needs.cost.buffer_bytes)
    return size, f"buffer.size: auto selects {size:,} steps; the default of {largest:,} steps needs {needed}, but {why}"


def _rounded(size: int) -> int:
    """Round down to two significant digits."""
    zeros: int = 10 ** max(0, len(str(size)) - 2)
    return size // zeros * zeros


def _blueprints(setup: AlgorithmSetup[AlgorithmConfig]) -> Mapping[str, Blueprint]:
    algorithm = ALGORITHMS.get(setup.options.name)
    if hasattr(algorithm, "blueprints"):
        blueprints: Mapping[str, Blueprint] = algorithm.blueprints(setup)
        return blueprints
    # A plugin may have no blueprints method. Count each role as an actor, which usually has the most outputs.
    return {role: Blueprint(setup.spec, action_outputs(setup.spec)) for role in algorithm.roles}


def _buffer_bytes(spec: Spec, config: BufferConfig) -> BufferBytes:
    buffer = BUFFERS.get(config.type)
    if hasattr(buffer, "required_bytes"):
        required: BufferBytes = buffer.required_bytes(config, spec)
        return required
    # A plugin may have no required_bytes method. Two observations and an action per step are usually an upper bound.
    return BufferBytes(config.size * (2 * space_bytes(*spec.observation.values()) + space_bytes(spec.action)))
