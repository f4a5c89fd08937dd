"""Clocks and output for the benchmark scripts of all libraries.

This module uses only the standard library, because it is imported in the virtual environment of each library.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import metadata
from typing import Any


def read_workload() -> dict[str, Any]:
    """Return the workload given on the command line as JSON."""
    work: dict[str, Any] = json.loads(sys.argv[1])
    return work


def print_result(outcome: dict[str, Any], *packages: str) -> None:
    """Print the result, peak RAM and package versions as one line of JSON for the parent process."""
    versions = {package: metadata.version(package) for package in packages}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**outcome, "peak_megabytes": peak, "versions": versions}), flush=True)


class Clock:
    """Measures steps per second after the first `warm` steps, which include compilation and first allocations."""

    def __init__(self, warm: int) -> None:
        self._warm = warm
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def record(self, steps: int) -> None:
        """Record that all work for the first `steps` steps is done."""
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
        print_result({"steps_per_second": steps / seconds, "steps": steps, "seconds": seconds}, *packages)


class Stopwatch:
    """Measures the seconds since its creation, except for the time passed to `exclude`."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._excluded = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._start - self._excluded

    def exclude(self, seconds: float) -> None:
        """Subtract `seconds` from the measured time."""
        self._excluded += seconds
