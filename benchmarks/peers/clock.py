"""What every peer is timed by. Needs nothing but Python: it is run in environments of other people's packages."""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import metadata
from typing import Any


def given_work() -> dict[str, Any]:
    """The work that the command line describes."""
    work: dict[str, Any] = json.loads(sys.argv[1])
    return work


def hand_over(outcome: dict[str, Any], *packages: str) -> None:
    """One line for whoever started this process, with the versions of the packages that did the work."""
    versions = {package: metadata.version(package) for package in packages}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**outcome, "peak_megabytes": peak, "versions": versions}), flush=True)


class Clock:
    """Times steps from the first ``warm`` of them on: what is compiled or allocated once is not counted."""

    def __init__(self, warm: int) -> None:
        self._warm = warm
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def see(self, steps: int) -> None:
        """All work of so many steps is done."""
        now = (steps, time.perf_counter())
        if steps < self._warm:
            return
        if self._first is None:
            self._first = now
        self._last = now

    def report(self, *packages: str) -> None:
        assert self._first is not None
        assert self._last is not None
        steps, seconds = (b - a for a, b in zip(self._first, self._last, strict=True))
        hand_over({"steps_per_second": steps / seconds, "steps": steps, "seconds": seconds}, *packages)


class Stopwatch:
    """Seconds since it was made, without those in which it was held."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._held = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._began - self._held

    def hold(self, seconds: float) -> None:
        """So many of the seconds past are not to count."""
        self._held += seconds
