"""Where the time of a run goes: each moment belongs to the innermost thing that is being done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by what they were spent on; what is done within something else is not counted twice."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._within: list[str] = []
        self._since = clock()
        self._all_to: str | None = None
        self.seconds: dict[str, float] = {}
        self.times: dict[str, int] = {}

    def enter(self, name: str) -> None:
        self._charge()
        self._within.append(name)
        self.times[name] = self.times.get(name, 0) + 1

    def leave(self) -> None:
        self._charge()
        self._within.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def all_to(self, name: str) -> Iterator[None]:
        """Whatever is done meanwhile counts as this: for what would not be done otherwise, or not so slowly."""
        self._charge()
        self._all_to = name
        try:
            yield
        finally:
            self._charge()
            self._all_to = None

    def _charge(self) -> None:
        now = self._clock()
        if self._within:
            name = self._all_to or self._within[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
