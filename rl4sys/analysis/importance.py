"""Importance of settings: the share of the variance of the results that each setting explains.

An additive model of the result (a mean, plus an effect for every value of every setting) is fitted by least squares.
The sum of squares of a setting is the increase of the model's squared error if the setting is removed. In a full grid,
this is its main effect; otherwise, the effect that the other settings do not explain. The increase expected by chance
for its degrees of freedom is subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rl4sys.analysis.groups import format_setting, format_setting_short
from rl4sys.analysis.statistics import Floats
from rl4sys.errors import RunError
from rl4sys.runs.series_files import STUDY_DATABASE

MIN_RESULTS = 4
"""Minimum number of results for an analysis of importance."""
_MAX_LEVELS = 6
"""Maximum number of distinct values of a numeric setting. More values are binned into ranges of equal frequency."""
_SHUFFLES = 999
_OUTLIER_SHARE = 0.5


@dataclass(frozen=True)
class Effect:
    """Effect of one setting on the results of runs."""

    setting: str
    share: float
    """Share of the variance of the result, from 0 to 1."""
    chance: float
    """P-value of a permutation test: probability of this share or a larger one if the setting had no effect."""
    means: Mapping[str, float]
    """Mean result for each value, or range of values."""


@dataclass(frozen=True)
class Importance:
    """Effects of all settings, largest share first."""

    effects: tuple[Effect, ...]
    seeds: float | None
    """Variance between runs that differ only in the seed, as a share of the total variance; None without such runs."""
    ranked: bool
    """True if ranks were analyzed instead of results because of an outlier."""

    @property
    def rest(self) -> float:
        """Share of the variance that no single setting explains: interactions and chance."""
        return max(0.0, 1.0 - sum(effect.share for effect in self.effects))


def importance(points: Sequence[Mapping[str, Any]], results: Sequence[float], seed: int = 0) -> Importance | None:
    """Return the importance of settings, or None for too few or equal results. `points` has the settings per result."""
    values = np.asarray(results, dtype=np.float64)
    if len(values) < MIN_RESULTS or np.ptp(values) == 0:
        return None
    levels = {name: _levels([point.get(name) for point in points]) for name in _varied(points)}
    if not levels:
        return None
    ranked = _has_outlier(values)
    response = _ranks(values) if ranked else values
    effects = _effects(levels, response, values, np.random.default_rng(seed))
    return Importance(
        tuple(sorted(effects, key=lambda effect: -effect.share)), _between_seeds(points, response), ranked
    )


def _varied(points: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({format_setting(point.get(name)) for point in points}) > 1]


def _effects(
    levels: Mapping[str, Sequence[str]], response: Floats, values: Floats, generator: np.random.Generator
) -> list[Effect]:
    columns = {name: _indicators(of_runs) for name, of_runs in levels.items()}
    centered = response - response.mean()
    total = float(centered @ centered)
    explained, noise = _sums_of_squares(columns, centered)
    shuffled = generator.permuted(np.tile(centered, (_SHUFFLES, 1)), axis=1).T
    by_chance, _ = _sums_of_squares(columns, shuffled)
    effects = []
    for name, of_runs in levels.items():
        freedom = len(set(of_runs)) - 1
        share = (float(explained[name]) - freedom * float(noise)) / total
        chance = (1 + int((by_chance[name] >= explained[name] - 1e-9 * total).sum())) / (1 + _SHUFFLES)
        effects.append(Effect(name, min(1.0, max(0.0, share)), chance, _means(of_runs, values)))
    return effects


def _sums_of_squares(columns: Mapping[str, Floats], results: Floats) -> tuple[dict[str, Floats], Floats]:
    """Return the sum of squares of each setting and the residual mean square, for each column of centered results."""
    full = _basis(list(columns.values()), len(results))
    freedom = len(results) - 1 - full.shape[1]
    if freedom < 1:
        # The model has more levels than results, so analyze each setting alone.
        alone = {name: _explained(_basis([column], len(results)), results) for name, column in columns.items()}
        return alone, np.zeros(results.shape[1:])
    explained = _explained(full, results)
    without = {
        name: _explained(_basis([other for n, other in columns.items() if n != name], len(results)), results)
        for name in columns
    }
    residual = np.asarray((results**2).sum(axis=0) - explained)
    return {name: np.maximum(explained - less, 0.0) for name, less in without.items()}, residual / freedom


def _basis(columns: Sequence[Floats], count: int) -> Floats:
    """Return an orthonormal basis of the centered columns."""
    together = np.concatenate([np.empty((count, 0)), *columns], axis=1)
    if not together.shape[1]:
        return together
    vectors, sizes, _ = np.linalg.svd(together - together.mean(axis=0), full_matrices=False)
    return np.asarray(vectors[:, sizes > 1e-9 * max(1.0, float(sizes.max()))])


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
    """Return the factor level of each value: the formatted value or, for many distinct numbers, its range."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(set(numbers)) <= _MAX_LEVELS:
        short, exact = [format_setting_short(value) for value in values], [format_setting(value) for value in values]
        return short if len(set(short)) == len(set(exact)) else exact
    parts = 4 if len(numbers) >= 16 else 3 if len(numbers) >= 9 else 2
    order = np.sort(np.asarray(numbers, dtype=np.float64))
    bins = np.searchsorted(np.quantile(order, np.arange(1, parts) / parts), numbers, side="left")
    return [_range_of([n for n, p in zip(numbers, bins, strict=True) if p == index]) for index in bins]


def _range_of(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.3g} to {max(numbers):.3g}"


def _has_outlier(values: Floats) -> bool:
    """Return whether one result accounts for most of the variance."""
    squares = (values - values.mean()) ** 2
    return len(values) > MIN_RESULTS and bool(squares.max() > _OUTLIER_SHARE * squares.sum())


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value from 0; equal values get their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[inverse])


def _between_seeds(points: Sequence[Mapping[str, Any]], values: Floats) -> float | None:
    """Return the variance between runs that differ only in the seed, as a share of the total variance."""
    together: dict[str, list[float]] = {}
    for point, value in zip(points, values, strict=True):
        together.setdefault(format_setting(dict(point)), []).append(float(value))
    freedom = len(values) - len(together)
    if not freedom:
        return None
    within = sum(float(np.var(several) * len(several)) for several in together.values())
    return min(1.0, within / freedom / float(np.var(values, ddof=1)))


_STUDY_NAME = "study"


def study_importances(folder: Path) -> dict[str, float]:
    """Return the importance of each setting as computed by Optuna.

    The result is empty if the folder has no study, the study has too few trials, or Optuna is not installed.
    """
    path = folder / STUDY_DATABASE
    if not path.is_file():
        return {}
    try:
        import optuna
    except ModuleNotFoundError:
        return {}
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///file:{quote(str(path.resolve()))}?mode=ro&uri=true")
        study = optuna.load_study(study_name=_STUDY_NAME, storage=storage)
        completed = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    except Exception as problem:
        # Optuna raises the errors of its database library unchanged, and these have many types.
        raise RunError(f"the study in {path} cannot be read: {problem}") from problem
    if len({trial.value for trial in completed}) < 2:
        return {}
    return dict(optuna.importance.get_param_importances(study))
