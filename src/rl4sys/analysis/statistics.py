"""Figures over a few runs, and how far to trust them.

The interquartile mean and intervals by stratified bootstrap, as Agarwal et al. propose for reinforcement learning in
"Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Statistic: TypeAlias = Callable[[Floats], Floats]
"""Takes runs along the last axis but one, and gives a figure for each of the rest."""

RESAMPLES = 2000
_RESAMPLES_OF_CURVES = 1000
"""A band is drawn, not read to the digit."""
CONFIDENCE = 0.95
_CHUNK = 2_000_000
"""Numbers drawn at once, so that many runs of long curves do not fill the memory."""


@dataclass(frozen=True)
class Interval:
    """Where a figure would lie if the runs were made again."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A figure over some runs; one run says nothing about others, so it has no interval."""

    value: float
    interval: Interval | None
    runs: int


def interquartile_weights(count: int) -> Floats:
    """How much each of ``count`` sorted values counts.

    Of n values each stands for 1/n of them; what lies between the quarters counts, a value on the border in part.
    """
    borders = np.arange(count + 1) / count
    inside = np.clip(borders, 0.25, 0.75)
    return np.asarray(2 * np.diff(inside))


def iqm(values: Floats) -> Floats:
    """The mean of the middle half, over the last axis but one."""
    ordered = np.sort(values, axis=-2)
    return np.asarray(np.einsum("r,...rp->...p", interquartile_weights(values.shape[-2]), ordered))


def mean(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=-2))


def median(values: Floats) -> Floats:
    return np.asarray(np.median(values, axis=-2))


STATISTICS: dict[str, Statistic] = {"iqm": iqm, "mean": mean, "median": median}


def bootstrap(
    strata: Sequence[Floats], statistic: Statistic, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Floats:
    """The statistic of ``resamples`` draws of as many runs as there are, each stratum (runs × points) by itself."""
    points = strata[0].shape[1]
    runs = sum(len(stratum) for stratum in strata)
    found = [
        statistic(np.concatenate([_draw(stratum, generator, count) for stratum in strata], axis=1))
        for count in _chunks(resamples, max(1, _CHUNK // max(1, runs * points)))
    ]
    return np.concatenate(found)


def percentile_band(
    strata: Sequence[Floats], statistic: Statistic, generator: np.random.Generator, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """The lower and upper end, point by point, of where the statistic lies with ``confidence``."""
    drawn = bootstrap(strata, statistic, generator, RESAMPLES if strata[0].shape[1] == 1 else _RESAMPLES_OF_CURVES)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return low, high


def estimate(strata: Sequence[Sequence[float]], statistic: Statistic, generator: np.random.Generator) -> Estimate:
    """The statistic of all values together, with its interval; a value that is not finite is left out."""
    columns = [_finite(stratum)[:, None] for stratum in strata]
    columns = [column for column in columns if len(column)]
    if not columns:
        return Estimate(float("nan"), None, 0)
    together = np.concatenate(columns)
    value = float(statistic(together)[0])
    if len(together) == 1:
        return Estimate(value, None, 1)
    low, high = percentile_band(columns, statistic, generator)
    return Estimate(value, Interval(float(low[0]), float(high[0])), len(together))


def probability_of_improvement(
    better: Sequence[float], worse: Sequence[float], generator: np.random.Generator
) -> Estimate:
    """How likely a run of the first kind comes out above one of the second; an equal pair counts half."""
    ours, theirs = _finite(better), _finite(worse)
    if not len(ours) or not len(theirs):
        return Estimate(float("nan"), None, 0)
    wins = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
    runs = len(ours) + len(theirs)
    if min(wins.shape) == 1:
        return Estimate(float(wins.mean()), None, runs)
    rows = generator.integers(len(ours), size=(RESAMPLES, len(ours), 1))
    columns = generator.integers(len(theirs), size=(RESAMPLES, 1, len(theirs)))
    drawn = wins[rows, columns].mean(axis=(1, 2))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(float(wins.mean()), Interval(float(low), float(high)), runs)


def _draw(stratum: Floats, generator: np.random.Generator, count: int) -> Floats:
    return stratum[generator.integers(len(stratum), size=(count, len(stratum)))]


def _chunks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)


def _finite(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
