"""Learning curves: one metric of a run over its steps, and the aggregate of several runs with a confidence band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl4sys.analysis.statistics import Floats, Statistic, percentile_band

POINTS = 300
"""Maximum number of steps at which curves are compared and drawn."""


@dataclass(frozen=True)
class Curve:
    """Finite values of a metric at increasing steps."""

    steps: npt.NDArray[np.int64]
    values: Floats
    dropped: int = 0
    """Number of rows with a value that is not finite."""
    first_dropped: int | None = None
    """Step of the first row with a value that is not finite; None if there is no such row."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def final(self) -> float:
        return float(self.values[-1])

    def best(self, *, highest: bool) -> tuple[float, int]:
        """Return the best value and the first step with this value."""
        index = int(np.argmax(self.values) if highest else np.argmin(self.values))
        return float(self.values[index]), int(self.steps[index])


@dataclass(frozen=True)
class Band:
    """Aggregated curve of several runs with its confidence band; `low` and `high` are None for a single run."""

    steps: Floats
    center: Floats
    low: Floats | None
    high: Floats | None
    runs: int


def make_curve(steps: npt.ArrayLike, values: npt.ArrayLike) -> Curve:
    """Build a curve from rows in file order. Keeps the last value at each step. Drops and counts non-finite values."""
    at, measured = np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64)
    finite = np.isfinite(measured)
    dropped = int(len(at) - finite.sum())
    first_dropped = int(at[~finite][0]) if dropped else None
    at, measured = at[finite], measured[finite]
    # np.unique keeps the first of equal steps, so reverse the rows to keep the last.
    unique, indices = np.unique(at[::-1], return_index=True)
    return Curve(unique, measured[::-1][indices], dropped, first_dropped)


def smooth(curve: Curve, window: int) -> Curve:
    """Return the centered moving average over `window` values. The window shrinks symmetrically toward the ends."""
    half = min(window // 2, (len(curve) - 1) // 2)
    if half < 1:
        return curve
    sums = np.concatenate([[0.0], np.cumsum(curve.values)])
    indices = np.arange(len(curve))
    reach = np.minimum(half, np.minimum(indices, len(curve) - 1 - indices))
    means = (sums[indices + reach + 1] - sums[indices - reach]) / (2 * reach + 1)
    return Curve(curve.steps, means, curve.dropped, curve.first_dropped)


def align(curves: Sequence[Curve], points: int = POINTS) -> tuple[Floats, Floats]:
    """Return common steps, and the linearly interpolated values of each curve at these steps (curves × steps).

    Curves with identical steps are not interpolated. Returns empty arrays if the ranges of steps do not overlap.
    """
    first = curves[0].steps
    if all(np.array_equal(curve.steps, first) for curve in curves):
        indices = _spread(len(first), points)
        return first[indices].astype(np.float64), np.stack([curve.values[indices] for curve in curves])
    start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    if start > end:
        return np.empty(0), np.empty((len(curves), 0))
    steps = _common_steps(curves, float(start), float(end), points)
    return steps, np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves])


def aggregate(strata: Sequence[Sequence[Curve]], statistic: Statistic, generator: np.random.Generator) -> Band:
    """Aggregate runs to one curve with a bootstrap band. Each stratum (runs of one config) is resampled separately."""
    curves = [curve for stratum in strata for curve in stratum if len(curve)]
    if not curves:
        return Band(np.empty(0), np.empty(0), None, None, 0)
    steps, values = align(curves)
    if len(curves) == 1 or not len(steps):
        return Band(steps, statistic(values), None, None, len(curves))
    sizes = [size for stratum in strata if (size := sum(1 for curve in stratum if len(curve)))]
    split = np.split(values, np.cumsum(sizes)[:-1])
    low, high = percentile_band(split, statistic, generator)
    return Band(steps, statistic(values), low, high, len(curves))


def _spread(count: int, points: int) -> npt.NDArray[np.intp]:
    """Return at most `points` evenly spaced indices below `count`, including the first and the last."""
    if count <= points:
        return np.arange(count)
    return np.linspace(0, count - 1, points).round().astype(np.intp)


def _common_steps(curves: Sequence[Curve], start: float, end: float, points: int) -> Floats:
    """Return evenly spaced steps from `start` to `end`; their number is that of the densest curve, at most `points`."""
    rows = max(int(((curve.steps >= start) & (curve.steps <= end)).sum()) for curve in curves)
    return np.linspace(start, end, max(1 if start == end else 2, min(points, rows)))
