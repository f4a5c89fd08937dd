"""Figures as people read them."""

from __future__ import annotations

import math

from rl4sys.analysis.statistics import Estimate

NOTHING = "—"


def figure(value: float | None) -> str:
    """A number with as many digits as say something."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if size < 0.001 and size else f"{value:.3f}"


def with_interval(estimate: Estimate | None) -> str:
    """``500.0 [488.1, 500.0]``; without an interval where there is none."""
    if estimate is None or not estimate.runs:
        return NOTHING
    if estimate.interval is None:
        return figure(estimate.value)
    return f"{figure(estimate.value)} [{figure(estimate.interval.low)}, {figure(estimate.interval.high)}]"


def counted(count: int, thing: str) -> str:
    """``1 run``, ``3 runs``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def steps(count: float | None) -> str:
    return NOTHING if count is None or not math.isfinite(count) else f"{count:,.0f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def short_steps(steps: float) -> str:
    """10,000 as 10k, 2,500,000 as 2.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"
