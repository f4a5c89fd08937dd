"""Aggregate statistics over a few runs, with confidence intervals.

Interquartile mean and stratified bootstrap intervals, as proposed for reinforcement learning by Agarwal et al.,
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
"""Function that aggregates over the second-to-last axis (runs)."""

RESAMPLES = 2000
_CURVE_RESAMPLES = 1000
"""Number of bootstrap samples for curves. A band in a plot needs less precision than a number in a table."""
CONFIDENCE = 0.95
_CHUNK = 2_000_000
"""Maximum number of values resampled at once, to limit RAM for many long curves."""


@dataclass(frozen=True)
class Interval:
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """Estimate of a statistic over `runs` runs, with its confidence interval; the interval is None for a single run."""

    value: float
    interval: Interval | None
    runs: int


def interquartile_weights(count: int) -> Floats:
    """Return the weights of `count` sorted values in the interquartile mean.

    Each value covers 1/count of the distribution; its weight is twice the share of this range between the quartiles.
    """
    borders = np.arange(count + 1) / count
    inside = np.clip(borders, 0.25, 0.75)
    return np.asarray(2 * np.diff(inside))


def iqm(values: Floats) -> Floats:
    """Return the interquartile mean over the second-to-last axis."""
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
    """Return the statistic of `resamples` bootstrap samples. Each stratum (runs × points) is resampled separately."""
    points = strata[0].shape[1]
    runs = sum(len(stratum) for stratum in strata)
    found = [
        statistic(np.concatenate([_resample(stratum, generator, count) for stratum in strata], axis=1))
        for count in _chunks(resamples, max(1, _CHUNK // max(1, runs * points)))
    ]
    return np.concatenate(found)


def percentile_band(
    strata: Sequence[Floats], statistic: Statistic, generator: np.random.Generator, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of the bootstrap confidence interval at each point."""
    samples = bootstrap(strata, statistic, generator, RESAMPLES if strata[0].shape[1] == 1 else _CURVE_RESAMPLES)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return low, high


def estimate(strata: Sequence[Sequence[float]], statistic: Statistic, generator: np.random.Generator) -> Estimate:
    """Estimate the statistic over all strata, with its confidence interval. Non-finite values are ignored."""
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
    """Estimate the probability that a value of `better` exceeds a value of `worse`. Ties count half."""
    ours, theirs = _finite(better), _finite(worse)
    if not len(ours) or not len(theirs):
        return Estimate(float("nan"), None, 0)
    wins = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
    runs = len(ours) + len(theirs)
    if min(wins.shape) == 1:
        return Estimate(float(wins.mean()), None, runs)
    rows = generator.integers(len(ours), size=(RESAMPLES, len(ours), 1))
    columns = generator.integers(len(theirs), size=(RESAMPLES, 1, len(theirs)))
    samples = wins[rows, columns].mean(axis=(1, 2))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Estimate(float(wins.mean()), Interval(float(low), float(high)), runs)


def _resample(stratum: Floats, generator: np.random.Generator, count: int) -> Floats:
    return stratum[generator.integers(len(stratum), size=(count, len(stratum)))]


def _chunks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)


def _finite(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
