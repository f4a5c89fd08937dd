"""Learning curves: one metric of one run over its steps, and several of them as one with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl4sys.analysis.statistics import Floats, Statistic, percentile_band

POINTS = 300
"""Steps at which curves are compared and drawn, at most; no screen shows more."""


@dataclass(frozen=True)
class Curve:
    """A metric at rising steps; the values are finite."""

    steps: npt.NDArray[np.int64]
    values: Floats
    dropped: int = 0
    """Rows in which the value was not a finite number."""
    first_dropped: int | None = None
    """The step of the first such row."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def final(self) -> float:
        return float(self.values[-1])

    def best(self, *, highest: bool) -> tuple[float, int]:
        """The best value and the step at which it was first reached."""
        place = int(np.argmax(self.values) if highest else np.argmin(self.values))
        return float(self.values[place]), int(self.steps[place])


@dataclass(frozen=True)
class Band:
    """Several runs as one curve; of one run there is no band."""

    steps: Floats
    centre: Floats
    low: Floats | None
    high: Floats | None
    runs: int


def make_curve(steps: npt.ArrayLike, values: npt.ArrayLike) -> Curve:
    """From rows as they were written: the last of several at one step counts, values that are no number are counted."""
    at, measured = np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64)
    finite = np.isfinite(measured)
    dropped = int(len(at) - finite.sum())
    first_dropped = int(at[~finite][0]) if dropped else None
    at, measured = at[finite], measured[finite]
    # np.unique gives the first of equal steps, so it is asked from the end.
    unique, places = np.unique(at[::-1], return_index=True)
    return Curve(unique, measured[::-1][places], dropped, first_dropped)


def smooth(curve: Curve, window: int) -> Curve:
    """Each value as the mean of itself and its neighbours, as many on either side; fewer towards the ends."""
    half = min(window // 2, (len(curve) - 1) // 2)
    if half < 1:
        return curve
    sums = np.concatenate([[0.0], np.cumsum(curve.values)])
    places = np.arange(len(curve))
    reach = np.minimum(half, np.minimum(places, len(curve) - 1 - places))
    means = (sums[places + reach + 1] - sums[places - reach]) / (2 * reach + 1)
    return Curve(curve.steps, means, curve.dropped, curve.first_dropped)


def align(curves: Sequence[Curve], points: int = POINTS) -> tuple[Floats, Floats]:
    """Steps that all curves reach, and each curve's values there (curves × steps), by straight lines between rows.

    Where all have their rows at the same steps, those are taken; no common step gives empty arrays.
    """
    first = curves[0].steps
    if all(np.array_equal(curve.steps, first) for curve in curves):
        places = _spread(len(first), points)
        return first[places].astype(np.float64), np.stack([curve.values[places] for curve in curves])
    start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    if start > end:
        return np.empty(0), np.empty((len(curves), 0))
    steps = _common_steps(curves, float(start), float(end), points)
    return steps, np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves])


def aggregate(strata: Sequence[Sequence[Curve]], statistic: Statistic, generator: np.random.Generator) -> Band:
    """Several runs as one curve, with the band in which it would lie if the runs were made again."""
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
    """At most ``points`` of ``count`` places, spread evenly, the first and the last among them."""
    if count <= points:
        return np.arange(count)
    return np.linspace(0, count - 1, points).round().astype(np.intp)


def _common_steps(curves: Sequence[Curve], start: float, end: float, points: int) -> Floats:
    """As many steps as the curve with the most rows has in the range, up to ``points``."""
    rows = max(int(((curve.steps >= start) & (curve.steps <= end)).sum()) for curve in curves)
    return np.linspace(start, end, max(1 if start == end else 2, min(points, rows)))
