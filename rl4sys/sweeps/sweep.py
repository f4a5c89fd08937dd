"""Sweeps: one experiment with many combinations of settings, each trained with one or more seeds."""

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
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.series_files import SWEEP_SETTINGS
from rl4sys.sweeps.ranges import Range
from rl4sys.sweeps.series import (
    Series,
    SeriesConfig,
    create_series,
    open_series,
    read_plan,
    record_failure,
    write_config,
)
from rl4sys.sweeps.trials import Trial, TrialStatus, TrialTask

_MAX_TRIALS = 100_000
_MAX_DRAWS = 1000


class SweepConfig(SeriesConfig):
    """Config file of a sweep."""

    sweep: dict[str, Range] = Field(min_length=1)
    """Settings by dotted name, each with a list of values or a range such as {low: 1e-4, high: 1e-2, log: true}."""
    method: Literal["grid", "random"] = "grid"
    """grid: every combination of values. random: `samples` points drawn at random."""
    samples: int | None = Field(default=None, gt=0)
    """Number of points to draw with method: random."""
    seed: int = Field(default=0, ge=0)
    """Seed of the random generator that draws the points."""

    @model_validator(mode="after")
    def _check_method(self) -> SweepConfig:
        if self.method == "random" and self.samples is None:
            raise ValueError("method: random requires samples, the number of points to draw")
        if self.method != "random" and self.samples is not None:
            raise ValueError("samples can only be set with method: random")
        continuous = [key for key, values in self.sweep.items() if values.values is None]
        if self.method == "grid" and continuous:
            raise ValueError(
                f"a grid needs a finite list of values: give '{continuous[0]}' a list or a step, or use method: random"
            )
        return self


def points(config: SweepConfig) -> list[dict[str, Any]]:
    """Return all points of a sweep, each as a mapping from dotted setting names to values."""
    if config.method == "grid":
        values = {key: values.values or [] for key, values in config.sweep.items()}
        _check_count(math.prod(len(choices) for choices in values.values()) * max(1, len(config.seeds)))
        return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    assert config.samples is not None  # checked above
    _check_count(config.samples * max(1, len(config.seeds)))
    return list(itertools.islice(_distinct_points(config), config.samples))


def _distinct_points(config: SweepConfig) -> Iterator[dict[str, Any]]:
    """Draw points at random without repetition."""
    rng, seen = np.random.default_rng(config.seed), set[str]()
    while True:
        for _ in range(_MAX_DRAWS):
            point = {key: values.sample(rng) for key, values in config.sweep.items()}
            text = json.dumps(point, sort_keys=True)
            if text not in seen:
                break
        else:
            raise ConfigError(
                f"samples is {config.samples}, but only {len(seen)} different points were found; reduce samples"
            )
        seen.add(text)
        yield point


def _check_count(trials: int) -> None:
    if trials > _MAX_TRIALS:
        raise ConfigError(
            f"the sweep has {trials:,} trials; the maximum is {_MAX_TRIALS:,}. Use fewer values or seeds, or method: "
            "random with fewer samples"
        )


def plan(config: SweepConfig, base: ExperimentConfig) -> list[Trial]:
    """List all trials, ordered by point and then by seed."""
    seeds = config.seeds or [base.experiment.seed]
    chosen = itertools.product(enumerate(points(config)), seeds)
    return [Trial(number, point, seed, changes) for number, ((point, changes), seed) in enumerate(chosen)]


def check_trials(config: SweepConfig, base: ExperimentConfig, trials: Sequence[Trial]) -> None:
    """Check the config of every point. Raises `ConfigError` with the settings of the first invalid point."""
    series = Series(Path(), config, base.to_settings())
    for trial in trials:
        if trial.seed != trials[0].seed:
            continue
        try:
            series.trial_config(trial)
        except ConfigError as problem:
            raise ConfigError(f"with {describe(trial.changes)}: {problem}") from problem


def create_sweep(root: Path, config: SweepConfig, base: ExperimentConfig, now: datetime) -> Sweep:
    """Create the directory and plan of a new sweep without running any trial."""
    trials = plan(config, base)
    check_trials(config, base, trials)
    series = create_series(root, config, base.to_settings(), now)
    series.write_plan(trials)
    write_config(series, SWEEP_SETTINGS)
    return Sweep(series, trials)


def open_sweep(path: Path) -> Sweep:
    series = open_series(path, SweepConfig, SWEEP_SETTINGS)
    return Sweep(series, read_plan(series))


def reconfigure_sweep(sweep: Sweep, config: SweepConfig) -> Sweep:
    """Store a new config and return the sweep with it. The new config must describe the same trials."""
    series = replace(sweep.series, config=config)
    write_config(series, SWEEP_SETTINGS)
    return Sweep(series, sweep.trials)


class Sweep:
    """Trial source of a sweep: all planned trials that are not completed."""

    def __init__(self, series: Series, trials: Sequence[Trial]) -> None:
        self.series, self.trials = series, trials
        self._statuses = {status.trial.number: status for status in series.statuses(trials)}
        self.remaining = [trial for trial in trials if self._statuses[trial.number].state != "completed"]

    @property
    def statuses(self) -> list[TrialStatus]:
        """Status of every trial, in order of their numbers."""
        return [self._statuses[trial.number] for trial in self.trials]

    def next_trial(self) -> Trial | None:
        return self.remaining.pop(0) if self.remaining else None

    def task(self, trial: Trial) -> TrialTask:
        return self.series.task(trial, waits_for_decision=False)

    def should_continue(self, trial: Trial, step: int, value: float) -> bool:
        return True

    def on_trial_ended(self, status: TrialStatus) -> None:
        trial = status.trial
        if status.state == "failed":
            record_failure(self.series.run_path(trial), status.message)
            self._statuses[trial.number] = status
        else:
            # The score may be the best or mean value, so it is computed from the metrics file.
            self._statuses[trial.number] = self.series.status(trial)


def describe(changes: Mapping[str, Any]) -> str:
    """Format a point as one line of short setting names and values."""
    names = short_names(list(changes))
    return " ".join(f"{names[key]}={_format_value(value)}" for key, value in changes.items())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Map each dotted name to its shortest unique suffix."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        names[key] = next(end for end in ends if sum(("." + k).endswith("." + end) for k in keys) == 1)
    return names


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)
