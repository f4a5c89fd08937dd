"""Sweeps: the same experiment with many combinations of settings, and several seeds of each."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from rl4sys.errors import ConfigError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.lab.ranges import Range
from rl4sys.lab.series import (
    Series,
    SeriesConfig,
    create_series,
    note_failure,
    open_series,
    read_plan,
    seal,
)
from rl4sys.lab.trials import Standing, Task, Trial

SETTINGS = "sweep.yaml"
_MOST_TRIALS = 100_000
_TRIES = 1000


class SweepConfig(SeriesConfig):
    """A sweep, as its file has it."""

    sweep: dict[str, Range] = Field(min_length=1)
    """Settings by their dotted names, each with a list of values, or a range: {low: 1e-4, high: 1e-2, log: true}."""
    method: Literal["grid", "random"] = "grid"
    """grid: every combination of values. random: so many points drawn from them."""
    samples: int | None = Field(default=None, gt=0)
    """How many points are drawn with method: random."""
    seed: int = Field(default=0, ge=0)
    """Decides which points are drawn."""

    @model_validator(mode="after")
    def _check_method(self) -> SweepConfig:
        if (self.method == "random") != (self.samples is not None):
            raise ValueError("samples, the number of points, goes with method: random")
        endless = [key for key, values in self.sweep.items() if values.values is None]
        if self.method == "grid" and endless:
            raise ValueError(
                f"a grid needs values to go through: give {endless[0]} a list or a step, or method: random"
            )
        return self


def points(settings: SweepConfig) -> list[dict[str, Any]]:
    """What is changed in each."""
    if settings.method == "grid":
        values = {key: values.values or [] for key, values in settings.sweep.items()}
        _check_count(math.prod(len(choices) for choices in values.values()) * max(1, len(settings.seeds)))
        return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    assert settings.samples is not None  # checked above
    _check_count(settings.samples * max(1, len(settings.seeds)))
    return list(itertools.islice(_distinct(settings), settings.samples))


def _distinct(settings: SweepConfig) -> Iterator[dict[str, Any]]:
    """Points drawn one after the other, none twice."""
    chance, seen = np.random.default_rng(settings.seed), set[str]()
    while True:
        for _ in range(_TRIES):
            point = {key: values.draw(chance) for key, values in settings.sweep.items()}
            text = json.dumps(point, sort_keys=True)
            if text not in seen:
                break
        else:
            raise ConfigError(
                f"samples is {settings.samples}, and only {len(seen)} different points were found; lower it"
            )
        seen.add(text)
        yield point


def _check_count(trials: int) -> None:
    if trials > _MOST_TRIALS:
        raise ConfigError(
            f"these are {trials:,} trials, and more than {_MOST_TRIALS:,} are refused; use method: random"
        )


def plan(settings: SweepConfig, base: ExperimentConfig) -> list[Trial]:
    """Every trial there is to be. All seeds of a point come one after the other."""
    seeds = settings.seeds or [base.experiment.seed]
    chosen = itertools.product(enumerate(points(settings)), seeds)
    return [Trial(number, point, seed, changes) for number, ((point, changes), seed) in enumerate(chosen)]


def check_trials(settings: SweepConfig, base: ExperimentConfig, trials: Sequence[Trial]) -> None:
    """Refuse before anything runs what could not be run; the message names the point."""
    series = Series(Path(), settings, base.to_settings())
    for trial in trials:
        if trial.seed != trials[0].seed:
            continue
        try:
            series.config(trial)
        except ConfigError as problem:
            raise ConfigError(f"with {describe(trial.changes)}: {problem}") from problem


def create_sweep(root: Path, settings: SweepConfig, base: ExperimentConfig, now: datetime) -> Sweep:
    """A new sweep, planned and written down, nothing of it run."""
    trials = plan(settings, base)
    check_trials(settings, base, trials)
    series = create_series(root, settings, base.to_settings(), now)
    series.write_plan(trials)
    seal(series, SETTINGS)
    return Sweep(series, trials)


def open_sweep(path: Path) -> Sweep:
    """One that was begun."""
    series = open_series(path, SweepConfig, SETTINGS)
    return Sweep(series, read_plan(series))


def changed_sweep(sweep: Sweep, settings: SweepConfig) -> Sweep:
    """The same trials under settings that change neither which there are nor what they do, which are stored."""
    series = replace(sweep.series, settings=settings)
    seal(series, SETTINGS)
    return Sweep(series, sweep.trials)


class Sweep:
    """Which trials of a sweep are left to run: all that are not completed."""

    def __init__(self, series: Series, trials: Sequence[Trial]) -> None:
        self.series, self.trials = series, trials
        self._standings = {trial.number: series.standing(trial) for trial in trials}
        self.left = [trial for trial in trials if self._standings[trial.number].status != "completed"]

    @property
    def standings(self) -> list[Standing]:
        """Every trial, in order."""
        return [self._standings[trial.number] for trial in self.trials]

    def next(self) -> Trial | None:
        return self.left.pop(0) if self.left else None

    def task(self, trial: Trial) -> Task:
        return self.series.task(trial, waits=False)

    def judge(self, trial: Trial, step: int, value: float) -> bool:
        return True

    def ended(self, standing: Standing) -> None:
        trial = standing.trial
        if standing.status == "failed":
            note_failure(self.series.run_path(trial), standing.message)
            self._standings[trial.number] = standing
        else:
            # What it is ranked by is not always its newest value.
            self._standings[trial.number] = self.series.standing(trial)


def describe(changes: Mapping[str, Any]) -> str:
    """A point in a line."""
    names = short_names(list(changes))
    return " ".join(f"{names[key]}={_in_words(value)}" for key, value in changes.items())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last words of dotted names, as many as tell them apart."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        names[key] = next(end for end in ends if sum(("." + k).endswith("." + end) for k in keys) == 1)
    return names


def _in_words(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)
