"""Which settings a result depends on: the share of its variance that each explains.

An additive model of the result (a mean, plus an effect for every value of every setting) is fitted by least squares. A
setting explains what the model loses without it: in a full grid the classic main effect, elsewhere what it explains
beyond the others. What as many made-up effects would explain by chance is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.analysis.groups import in_short, in_words
from rl4sys.analysis.statistics import Floats

FEWEST = 4
"""With fewer results than this nothing can be said."""
_MOST_LEVELS = 6
"""A number with more different values than this is put into ranges, each with as many results."""
_SHUFFLES = 999
_ONE_DOMINATES = 0.5


@dataclass(frozen=True)
class Effect:
    """What one setting does to the result."""

    setting: str
    share: float
    """Of the variance of the result, from 0 to 1."""
    chance: float
    """How often the setting would seem to explain as much if it did nothing."""
    means: Mapping[str, float]
    """The mean result at each value, or range of values."""


@dataclass(frozen=True)
class Importance:
    """The shares of all settings, greatest first."""

    effects: tuple[Effect, ...]
    seeds: float | None
    """The share that lies between runs of the same settings; None if none were repeated."""
    ranked: bool
    """Whether places in the order of results were taken instead of the results, because one of them lies far off."""

    @property
    def rest(self) -> float:
        """What no setting explains by itself: combinations of them, and chance."""
        return max(0.0, 1.0 - sum(effect.share for effect in self.effects))


def importance(points: Sequence[Mapping[str, Any]], results: Sequence[float], seed: int = 0) -> Importance | None:
    """Of settings (by name, for each result); None where too few results, or equal ones, tell nothing."""
    values = np.asarray(results, dtype=np.float64)
    if len(values) < FEWEST or np.ptp(values) == 0:
        return None
    levels = {name: _levels([point.get(name) for point in points]) for name in _varied(points)}
    if not levels:
        return None
    ranked = _dominated(values)
    judged = _ranks(values) if ranked else values
    effects = _effects(levels, judged, values, np.random.default_rng(seed))
    return Importance(tuple(sorted(effects, key=lambda effect: -effect.share)), _between_seeds(points, judged), ranked)


def _varied(points: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({in_words(point.get(name)) for point in points}) > 1]


def _effects(
    levels: Mapping[str, Sequence[str]], judged: Floats, values: Floats, generator: np.random.Generator
) -> list[Effect]:
    columns = {name: _indicators(of_runs) for name, of_runs in levels.items()}
    centred = judged - judged.mean()
    total = float(centred @ centred)
    explained, noise = _sums_of_squares(columns, centred)
    shuffled = generator.permuted(np.tile(centred, (_SHUFFLES, 1)), axis=1).T
    by_chance, _ = _sums_of_squares(columns, shuffled)
    effects = []
    for name, of_runs in levels.items():
        freedom = len(set(of_runs)) - 1
        share = (float(explained[name]) - freedom * float(noise)) / total
        chance = (1 + int((by_chance[name] >= explained[name] - 1e-9 * total).sum())) / (1 + _SHUFFLES)
        effects.append(Effect(name, min(1.0, max(0.0, share)), chance, _means(of_runs, values)))
    return effects


def _sums_of_squares(columns: Mapping[str, Floats], results: Floats) -> tuple[dict[str, Floats], Floats]:
    """What each setting explains of (columns of) centred results, and the mean square that is left over."""
    whole = _basis(list(columns.values()), len(results))
    freedom = len(results) - 1 - whole.shape[1]
    if freedom < 1:
        # More values than results: each setting by itself.
        alone = {name: _explained(_basis([column], len(results)), results) for name, column in columns.items()}
        return alone, np.zeros(results.shape[1:])
    explained = _explained(whole, results)
    without = {
        name: _explained(_basis([other for n, other in columns.items() if n != name], len(results)), results)
        for name in columns
    }
    left = np.asarray((results**2).sum(axis=0) - explained)
    return {name: np.maximum(explained - less, 0.0) for name, less in without.items()}, left / freedom


def _basis(columns: Sequence[Floats], count: int) -> Floats:
    """Directions at right angles that span the centred columns."""
    together = np.concatenate([np.empty((count, 0)), *columns], axis=1)
    if not together.shape[1]:
        return together
    directions, sizes, _ = np.linalg.svd(together - together.mean(axis=0), full_matrices=False)
    return np.asarray(directions[:, sizes > 1e-9 * max(1.0, float(sizes.max()))])


def _explained(basis: Floats, results: Floats) -> Floats:
    return np.asarray(((basis.T @ results) ** 2).sum(axis=0))


def _indicators(levels: Sequence[str]) -> Floats:
    names = list(dict.fromkeys(levels))
    return np.array([[level == name for name in names] for level in levels], dtype=np.float64)


def _means(levels: Sequence[str], values: Floats) -> dict[str, float]:
    names = dict.fromkeys(levels)
    return {
        name: float(np.mean([v for level, v in zip(levels, values, strict=True) if level == name])) for name in names
    }


def _levels(values: Sequence[Any]) -> list[str]:
    """The values in words and in order, or, of many different numbers, the ranges they are in."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(set(numbers)) <= _MOST_LEVELS:
        short, exact = [in_short(value) for value in values], [in_words(value) for value in values]
        return short if len(set(short)) == len(set(exact)) else exact
    parts = 4 if len(numbers) >= 16 else 3 if len(numbers) >= 9 else 2
    order = np.sort(np.asarray(numbers, dtype=np.float64))
    places = np.searchsorted(np.quantile(order, np.arange(1, parts) / parts), numbers, side="left")
    return [_range_of([n for n, p in zip(numbers, places, strict=True) if p == place]) for place in places]


def _range_of(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.3g} to {max(numbers):.3g}"


def _dominated(values: Floats) -> bool:
    """Whether one result makes up most of the variance, which then says little about the others."""
    squares = (values - values.mean()) ** 2
    return len(values) > FEWEST and bool(squares.max() > _ONE_DOMINATES * squares.sum())


def _ranks(values: Floats) -> Floats:
    """Places from 0, equal values sharing the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[places])


def _between_seeds(points: Sequence[Mapping[str, Any]], values: Floats) -> float | None:
    """The variance among runs of one point, as a share of the variance of all."""
    together: dict[str, list[float]] = {}
    for point, value in zip(points, values, strict=True):
        together.setdefault(in_words(dict(point)), []).append(float(value))
    freedom = len(values) - len(together)
    if not freedom:
        return None
    within = sum(float(np.var(several) * len(several)) for several in together.values())
    return min(1.0, within / freedom / float(np.var(values, ddof=1)))
