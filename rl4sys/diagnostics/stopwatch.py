"""Stopwatch for nested phases. Elapsed time is charged to the innermost active phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures seconds, number of entries and RAM of each phase. Outer phases exclude time and RAM of inner phases.

    ``memory`` returns the RAM of this process in bytes. By default, RAM is not measured.
    """

    def __init__(self, clock: Callable[[], float], memory: Callable[[], int] = lambda: 0) -> None:
        self._clock, self._memory = clock, memory
        self._resident = memory()
        self._stack: list[str] = []
        self._since = clock()
        self._override: str | None = None
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.growth: dict[str, int] = {}
        """Total growth of the RAM within each phase in bytes; negative if the RAM shrank."""
        self.peaks: dict[str, int] = {}
        """Peak RAM in bytes of each phase: the larger of the values at its start and its end."""

    def enter(self, name: str) -> None:
        self._charge()
        self._stack.append(name)
        self.counts[name] = self.counts.get(name, 0) + 1

    def exit(self) -> None:
        self._charge()
        self._stack.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.exit()

    @contextmanager
    def charge_all_to(self, name: str) -> Iterator[None]:
        """Charge the time of all phases in this context to `name`. Used for the overhead of the measurement itself."""
        self._charge()
        self._override = name
        try:
            yield
        finally:
            self._charge()
            self._override = None

    def _charge(self) -> None:
        now, resident = self._clock(), self._memory()
        if self._stack:
            name = self._override or self._stack[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
            self.growth[name] = self.growth.get(name, 0) + resident - self._resident
            self.peaks[name] = max(self.peaks.get(name, 0), self._resident, resident)
        self._since, self._resident = now, resident
