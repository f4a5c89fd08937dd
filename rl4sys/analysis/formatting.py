"""Formatting of numbers for tables and messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl4sys.analysis.statistics import Estimate  # numpy would slow down commands that only read runs


MISSING = "—"


def format_number(value: float | None) -> str:
    """Format a number with about four significant digits; a dash if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if size < 0.001 and size else f"{value:.3f}"


def format_estimate(estimate: Estimate | None) -> str:
    """Format an estimate with its confidence interval, if it has one: `500.0 [488.1, 500.0]`."""
    if estimate is None or not estimate.runs:
        return MISSING
    if estimate.interval is None:
        return format_number(estimate.value)
    value, low, high = map(format_number, (estimate.value, estimate.interval.low, estimate.interval.high))
    return f"{value} [{low}, {high}]"


def pluralize(count: int, noun: str) -> str:
    """Format a count with its noun: `1 run`, `3 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_steps(count: float | None) -> str:
    return MISSING if count is None or not math.isfinite(count) else f"{count:,.0f}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def abbreviate_steps(steps: float) -> str:
    """Format a number of steps for an axis: 10,000 as 10k, 2,500,000 as 2.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"
