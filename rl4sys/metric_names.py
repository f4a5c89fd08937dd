"""Names of the metrics that score a run, and their alias ``reward``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

REWARD = "reward"
"""Alias in commands and configs for the first of `RETURN_METRICS` that a run has recorded."""

RETURN_METRICS = ("evaluation/return", "episode/return")
"""Metrics that score a run, in order of preference."""

Run = TypeVar("Run")


def reward_metric(runs: Sequence[Run], has: Callable[[Run, str], bool]) -> str:
    """Return the first of `RETURN_METRICS` that all `runs` have, or else the one that most runs have."""
    counts: dict[str, int] = {}
    for name in RETURN_METRICS:
        counts[name] = sum(1 for run in runs if has(run, name))
        if counts[name] == len(runs):
            return name
    return max(RETURN_METRICS, key=lambda name: counts[name])
