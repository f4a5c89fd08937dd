"""Tuning: a search for better settings, each trial chosen by what the trials before it were worth.

Trials are proposed in batches of ``parallel_jobs``, and what a batch was worth is told when all of it has ended. So
nothing depends on which of several trials was faster, and a study with a seed is the same study every time.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from rl4sys.config import Config
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.files import replace_file
from rl4sys.lab.ranges import Range
from rl4sys.lab.series import Series, SeriesConfig, create_series, note_failure, open_series, seal
from rl4sys.lab.study import Memory, Outcome, import_optuna, make_sampler
from rl4sys.lab.sweep import describe
from rl4sys.lab.trials import Standing, Task, Trial

SETTINGS, OUTCOMES = "study.yaml", "outcomes.json"


class PruningSettings(Config):
    """When a trial is stopped early."""

    enabled: bool = True
    """Stop trials that, after an evaluation, are behind what others were at the same step."""
    percentile: float = Field(default=50.0, ge=0, le=100)
    """A trial goes on while its best evaluation is among so many per cent of the best; 50 is the median."""
    startup_trials: int = Field(default=5, ge=0)
    """Trials that are completed before the first is stopped early."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps of the environment that every trial takes."""


class TuneConfig(SeriesConfig):
    """A study, as its file has it."""

    search: dict[str, Range] = Field(min_length=1)
    """Settings by their dotted names, each with a range, {low: 1e-5, high: 1e-2, log: true}, or a list of values."""
    n_trials: int = Field(default=20, gt=0)
    """How many points are tried."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds after which no further point is tried; those that run are completed."""
    start: list[dict[str, Any]] = Field(default_factory=list)
    """Points to try first, such as the settings in use; what one leaves out is chosen."""
    seed: int = Field(default=0, ge=0)
    """Decides what is tried."""
    startup_trials: int = Field(default=10, ge=0)
    """Points that are drawn by chance before the search learns from them."""
    pruning: PruningSettings = PruningSettings()
    """Stopping trials early."""

    @field_validator("search")
    @classmethod
    def _check_search(cls, search: dict[str, Range]) -> dict[str, Range]:
        for key in search:
            if key.startswith("training."):
                raise ValueError(f"{key} cannot be searched: trials are compared at the same steps")
        return search

    @model_validator(mode="after")
    def _check_start(self) -> TuneConfig:
        for point in self.start:
            for key, value in point.items():
                if key not in self.search:
                    raise ValueError(f"start has {key}, which is not under search")
                if not self.search[key].holds(value):
                    raise ValueError(f"start has {key}: {value!r}, which is not within what is searched")
        return self


def create_study(root: Path, settings: TuneConfig, base: ExperimentConfig, now: datetime) -> Study:
    """A new study, of which nothing was tried."""
    import_optuna()
    check_space(settings, base)
    series = create_series(root, settings, base.to_settings(), now)
    seal(series, SETTINGS)
    return Study(series, settings)


def open_study(path: Path) -> Study:
    """One that was begun."""
    series = open_series(path, TuneConfig, SETTINGS)
    assert isinstance(series.settings, TuneConfig)
    return Study(series, series.settings)


def lengthen(study: Study, n_trials: int, timeout: float | None) -> Study:
    """The same study, which goes on to another number of trials, or for another time."""
    settings = study.settings.model_copy(update={"n_trials": n_trials, "timeout": timeout})
    series = replace(study.series, settings=settings)
    seal(series, SETTINGS)
    return Study(series, settings)


def check_space(settings: TuneConfig, base: ExperimentConfig) -> None:
    """Refuse before anything runs a value that no trial could have: each is tried by itself."""
    series = Series(Path(), settings, base.to_settings())
    for key, values in settings.search.items():
        for value in values.ends:
            try:
                series.config(Trial(0, 0, base.experiment.seed, {key: value}))
            except ConfigError as problem:
                raise ConfigError(f"with {describe({key: value})}: {problem}") from problem


@dataclass
class _Chain:
    """The trials of one point, one seed after the other: what the first shows may save the others."""

    point: int
    left: list[Trial]
    running: bool = False
    values: list[float] = field(default_factory=list)
    behind: bool = False
    outcome: Outcome | None = None

    @property
    def ready(self) -> bool:
        return self.outcome is None and not self.running


class Study:
    """Which trials there are to run: those of a batch, and then those of the next."""

    def __init__(self, series: Series, settings: TuneConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.series, self.settings, self._clock = series, settings, clock
        self.memory = Memory(series.path, settings.search, settings.direction)
        self._seeds = settings.seeds or [series.base["experiment"]["seed"]]
        self._batch: list[_Chain] = []
        self._began = clock()
        self._failures: dict[int, Standing] = {}
        self._tell_outcomes()

    @property
    def standings(self) -> list[Standing]:
        """Every trial of which something is known, in order."""
        found = [self._standing(trial) for trial in self._planned()]
        return [standing for standing in found if standing.status != "waiting"]

    def next(self) -> Trial | None:
        if not self._batch and self._goes_on():
            self._open_batch()
        for chain in self._batch:
            if chain.ready:
                chain.running = True
                return chain.left[0]
        return None

    def task(self, trial: Trial) -> Task:
        return self.series.task(trial, waits=self.settings.pruning.enabled)

    def judge(self, trial: Trial, step: int, value: float) -> bool:
        """Evaluations of all trials are at the same steps here, whatever the size of their rounds."""
        training = self.series.base["training"]
        total, frequency = training["total_timesteps"], training["eval_frequency"]
        nominal = total if step >= total else step // frequency * frequency
        place = self._seeds.index(trial.seed)
        at, last = place * total + nominal, len(self._seeds) * total
        if not math.isfinite(value):
            return True
        self.memory.report(trial.point, at, value)
        # What came before the newest step was judged when it was new.
        if not self.settings.pruning.enabled or at == last or at < self.memory.newest_step(trial.point):
            return True
        chain = self._chain(trial)
        chain.behind = self.memory.falls_behind(trial.point, self._pruner())
        return not chain.behind

    def ended(self, standing: Standing) -> None:
        chain = self._chain(standing.trial)
        chain.running = False
        chain.left.pop(0)
        chain.outcome = self._outcome(chain, standing)
        if all(chain.outcome for chain in self._batch):
            self._close_batch()

    def _outcome(self, chain: _Chain, standing: Standing) -> Outcome | None:
        """None while the point has seeds left."""
        trial = standing.trial
        value = self.series.value(trial)
        if standing.status == "failed" or value is None or not math.isfinite(value):
            message = standing.message or f"it has no {self.series.settings.metric} that is a number"
            note_failure(self.series.run_path(trial), message)
            self._failures[trial.number] = Standing(trial, "failed", standing.steps, message=message)
            return "failed"
        if chain.behind:
            return "pruned"
        chain.values.append(value)
        return None if chain.left else "completed"

    def _goes_on(self) -> bool:
        opened = any(self.memory.is_open(number) for number in range(len(self.memory.trials)))
        in_time = self.settings.timeout is None or self._clock() - self._began < self.settings.timeout
        return opened or (in_time and len(self.memory.trials) < self.settings.n_trials)

    def _open_batch(self) -> None:
        """The points of one batch, from those that were begun to those that are still to be proposed."""
        size, known = self.settings.parallel_jobs, len(self.memory.trials)
        opened = [number for number in range(known) if self.memory.is_open(number)]
        first = (opened[0] if opened else known) // size * size
        for number in range(known, min(first + size, self.settings.n_trials)):
            given = self.settings.start[number] if number < len(self.settings.start) else None
            sampler = make_sampler(self.settings.seed, number, self.settings.startup_trials)
            self.memory.propose(number, sampler, given)
        self.series.write_plan(self._planned())
        last = min(first + size, len(self.memory.trials))
        numbers = [number for number in range(first, last) if self.memory.is_open(number)]
        self._batch = [_Chain(number, self._trials_of(number)) for number in numbers]

    def _close_batch(self) -> None:
        """First all outcomes are written down, so that a kill in the middle of telling them changes none."""
        outcomes = {
            chain.point: {"outcome": chain.outcome, "value": statistics.fmean(chain.values) if chain.values else None}
            for chain in self._batch
        }
        replace_file(self.series.path / OUTCOMES, json.dumps(outcomes, indent=1).encode())
        self._tell_outcomes()
        self._batch = []

    def _tell_outcomes(self) -> None:
        path = self.series.path / OUTCOMES
        outcomes: Mapping[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
        for point, found in outcomes.items():
            value = found["value"] if found["outcome"] == "completed" else None
            self.memory.tell(int(point), found["outcome"], value)

    def _planned(self) -> list[Trial]:
        return [trial for point in range(len(self.memory.trials)) for trial in self._trials_of(point)]

    def _trials_of(self, point: int) -> list[Trial]:
        changes, seeds = self.memory.changes(point), self._seeds
        return [Trial(point * len(seeds) + place, point, seed, changes) for place, seed in enumerate(seeds)]

    def _standing(self, trial: Trial) -> Standing:
        if trial.number in self._failures:
            return self._failures[trial.number]
        standing = self.series.standing(trial)
        pruned = standing.status == "stopped" and self.memory.trials[trial.point].state.name == "PRUNED"
        return (
            Standing(trial, "pruned", standing.steps, standing.total_timesteps, standing.value) if pruned else standing
        )

    def _chain(self, trial: Trial) -> _Chain:
        return next(chain for chain in self._batch if chain.point == trial.point)

    def _pruner(self) -> Any:
        pruning = self.settings.pruning
        return import_optuna().pruners.PercentilePruner(
            pruning.percentile, n_startup_trials=pruning.startup_trials, n_warmup_steps=pruning.warmup_steps
        )

    @property
    def finished(self) -> int:
        """How many points are completed, stopped early or failed."""
        return sum(trial.state.is_finished() for trial in self.memory.trials)

    def completed(self) -> Sequence[Standing]:
        """The trials of points that were tried to their end."""
        states = [trial.state.name for trial in self.memory.trials]
        return [standing for standing in self.standings if states[standing.trial.point] == "COMPLETE"]
