"""Whether a learner's buffer fits into the memory that is left, and what would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl4sys.buffers.base import BufferConfig
from rl4sys.errors import ConfigError
from rl4sys.experiment.machine import in_words
from rl4sys.learner import Cost, LearnerConfig, learner_cost
from rl4sys.spec import Spec

_FILL = 0.8
"""How much of what is left a buffer is advised to take: networks, environments and others want some too."""


@dataclass(frozen=True)
class Needs:
    """What a learner's buffer takes of memory."""

    spec: Spec
    settings: LearnerConfig
    cost: Cost

    @property
    def memory_bytes(self) -> int:
        """When it is full."""
        return self.cost.buffer_bytes - self.cost.disk_bytes

    def still(self, steps: int) -> int:
        """What it will still take after so many steps."""
        return int(self.memory_bytes * max(0.0, 1 - steps / self.settings.buffer.size))

    def check(self, available: int | None) -> None:
        """Refuse what would be killed for want of memory hours later, when it is full."""
        if available is None or self.memory_bytes <= available:
            return
        raise ConfigError(
            f"a buffer of {in_words(self.memory_bytes)} of memory when full, and {in_words(available)} are left; "
            f"{self.advice(available)}"
        )

    def advice(self, available: int) -> str:
        """Settings of the buffer that would fit, as they are given on the command line."""
        fitting = [*self._smaller(available), *self._elsewhere(available)]
        if not fitting:
            return "lower buffer.size, or that of its pools, or use a machine with more memory"
        return f"what would fit: {', or '.join(fitting)}"

    def _smaller(self, available: int) -> Iterator[str]:
        buffer, room = self.settings.buffer, int(_FILL * available)
        # Round enough to be typed; what a buffer takes grows with its size, if not always evenly.
        size = _rounded(buffer.size * room // max(self.memory_bytes, 1))
        while size > 0 and self._memory(size=size) > room:
            size = _rounded(size // 2)
        if 0 < size < buffer.size:
            yield f"buffer.size={size} ({in_words(self._memory(size=size))})"

    def _elsewhere(self, available: int) -> Iterator[str]:
        """The same experience, kept in another way."""
        for name, value, where in (("unstack", True, " where images are stacked frames"), ("storage", "disk", "")):
            if getattr(self.settings.buffer, name, value) != value and self._memory(**{name: value}) <= available:
                yield f"buffer.{name}={str(value).lower()}{where} ({in_words(self._memory(**{name: value}))})"

    def _memory(self, **changes: Any) -> int:
        buffer: BufferConfig = self.settings.buffer.model_copy(update=changes)
        settings: LearnerConfig = self.settings.model_copy(update={"buffer": buffer})
        return needs_of(self.spec, settings).memory_bytes


def needs_of(spec: Spec, settings: LearnerConfig) -> Needs:
    return Needs(spec, settings, learner_cost(spec, settings))


def _rounded(size: int) -> int:
    """Down to two digits and zeros."""
    zeros: int = 10 ** max(0, len(str(size)) - 2)
    return size // zeros * zeros
