"""Hyperparameter search: each batch of trials is chosen from the results of earlier batches.

Trials are proposed in batches of ``parallel_jobs``. The results of a batch are given to Optuna only when all of its
trials have ended. The study therefore does not depend on which trial is faster and is reproducible from its seed.
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
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.files import replace_file
from rl4sys.runs.series_files import STUDY_SETTINGS
from rl4sys.sweeps.optuna_study import OptunaStudy, Outcome, import_optuna, make_sampler
from rl4sys.sweeps.ranges import Range
from rl4sys.sweeps.series import Series, SeriesConfig, create_series, open_series, record_failure, write_config
from rl4sys.sweeps.sweep import describe
from rl4sys.sweeps.trials import Trial, TrialStatus, TrialTask

OUTCOMES = "outcomes.json"


class PruningConfig(Config):
    """Settings for the early stopping of poor trials."""

    enabled: bool = True
    """Stop trials whose evaluations are worse than those of other trials at the same step."""
    percentile: float = Field(default=50.0, ge=0, le=100)
    """A trial continues while its best evaluation is in the best `percentile` percent of trials at the same step."""
    startup_trials: int = Field(default=5, ge=0)
    """Number of trials that must be completed before a trial may be stopped early."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of environment steps of a trial before the trial may be stopped early."""


class TuneConfig(SeriesConfig):
    """Config file of a study."""

    search: dict[str, Range] = Field(min_length=1)
    """Settings by dotted name, each with a range such as {low: 1e-5, high: 1e-2, log: true} or a list of values."""
    n_trials: int = Field(default=20, gt=0)
    """Number of points to try."""
    timeout: float | None = Field(default=None, gt=0)
    """Time in seconds after which no new point is started; running trials are completed."""
    start: list[dict[str, Any]] = Field(default_factory=list)
    """Points to try first, for example the current settings; missing settings are sampled."""
    seed: int = Field(default=0, ge=0)
    """Seed for sampling points."""
    startup_trials: int = Field(default=10, ge=0)
    """Number of points drawn at random before the search uses earlier results."""
    pruning: PruningConfig = PruningConfig()
    """Early stopping of poor trials."""

    @field_validator("search")
    @classmethod
    def _check_search(cls, search: dict[str, Range]) -> dict[str, Range]:
        for key in search:
            if key.startswith("training."):
                raise ValueError(f"'{key}' cannot be searched because trials are compared at the same steps")
        return search

    @model_validator(mode="after")
    def _check_start(self) -> TuneConfig:
        for point in self.start:
            for key, value in point.items():
                if key not in self.search:
                    raise ValueError(f"start contains '{key}', which is not in search")
                if not self.search[key].contains(value):
                    raise ValueError(f"start sets '{key}' to {value!r}, which is outside its search range")
        return self


def create_study(root: Path, config: TuneConfig, base: ExperimentConfig, now: datetime) -> Study:
    """Create the directory of a new study without running any trial."""
    import_optuna()
    check_space(config, base)
    series = create_series(root, config, base.to_settings(), now)
    write_config(series, STUDY_SETTINGS)
    return Study(series, config)


def open_study(path: Path) -> Study:
    series = open_series(path, TuneConfig, STUDY_SETTINGS)
    assert isinstance(series.config, TuneConfig)
    return Study(series, series.config)


def extend_study(study: Study, n_trials: int, timeout: float | None) -> Study:
    """Store a new number of trials and a new timeout, and return the study with this config."""
    config = study.config.model_copy(update={"n_trials": n_trials, "timeout": timeout})
    series = replace(study.series, config=config)
    write_config(series, STUDY_SETTINGS)
    return Study(series, config)


def check_space(config: TuneConfig, base: ExperimentConfig) -> None:
    """Check each choice or bound by setting it in the base config. Raises `ConfigError` if a value is invalid."""
    series = Series(Path(), config, base.to_settings())
    for key, values in config.search.items():
        for value in values.choices_or_bounds:
            try:
                series.trial_config(Trial(0, 0, base.experiment.seed, {key: value}))
            except ConfigError as problem:
                raise ConfigError(f"with {describe({key: value})}: {problem}") from problem


@dataclass
class _PointTrials:
    """Trials of one point. Seeds run one after the other, so a pruned point skips its remaining seeds."""

    point: int
    remaining: list[Trial]
    running: bool = False
    values: list[float] = field(default_factory=list)
    should_prune: bool = False
    outcome: Outcome | None = None

    @property
    def is_ready(self) -> bool:
        return self.outcome is None and not self.running


class Study:
    """Trial source of a study: proposes one batch of points at a time."""

    def __init__(self, series: Series, config: TuneConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.series, self.config, self._clock = series, config, clock
        self.optuna_study = OptunaStudy(series.path, config.search, config.direction)
        self._seeds = config.seeds or [series.base["experiment"]["seed"]]
        self._batch: list[_PointTrials] = []
        self._started_at = clock()
        self._failures: dict[int, TrialStatus] = {}
        self._apply_outcomes()

    @property
    def statuses(self) -> list[TrialStatus]:
        """Status of every trial that was started, in order of their numbers."""
        found = [self._status(trial) for trial in self._planned_trials()]
        return [status for status in found if status.state != "waiting"]

    def next_trial(self) -> Trial | None:
        if not self._batch and self._has_next_batch():
            self._open_batch()
        for point in self._batch:
            if point.is_ready:
                point.running = True
                return point.remaining[0]
        return None

    def task(self, trial: Trial) -> TrialTask:
        return self.series.task(trial, waits_for_decision=self.config.pruning.enabled)

    def should_continue(self, trial: Trial, step: int, value: float) -> bool:
        """Store an evaluation and return False if the trial is to be pruned.

        Steps are rounded down to a multiple of the evaluation frequency, so trials with different rollout sizes are
        compared at the same steps. For pruning, the seeds of a point are treated as one long trial.
        """
        training = self.series.base["training"]
        total, frequency = training["total_timesteps"], training["eval_frequency"]
        nominal = total if step >= total else step // frequency * frequency
        at, last = self._seeds.index(trial.seed) * total + nominal, len(self._seeds) * total
        if not math.isfinite(value):
            return True
        self.optuna_study.report(trial.point, at, value)
        # A resumed trial sends all evaluations again; all but the newest already have a decision.
        if not self.config.pruning.enabled or at == last or at < self.optuna_study.newest_step(trial.point):
            return True
        point = self._point_of(trial)
        point.should_prune = self.optuna_study.should_prune(trial.point, self._pruner())
        return not point.should_prune

    def on_trial_ended(self, status: TrialStatus) -> None:
        point = self._point_of(status.trial)
        point.running = False
        point.remaining.pop(0)
        point.outcome = self._outcome(point, status)
        if all(point.outcome for point in self._batch):
            self._close_batch()

    def _outcome(self, point: _PointTrials, status: TrialStatus) -> Outcome | None:
        """Return the outcome of a point, or None while it has seeds left."""
        trial = status.trial
        value = self.series.score(trial)
        if status.state == "failed" or value is None or not math.isfinite(value):
            message = status.message or f"the trial has no finite value of {self.series.config.metric}"
            record_failure(self.series.run_path(trial), message)
            self._failures[trial.number] = TrialStatus(trial, "failed", status.steps, message=message)
            return "failed"
        if point.should_prune:
            return "pruned"
        point.values.append(value)
        return None if point.remaining else "completed"

    def _has_next_batch(self) -> bool:
        trials = self.optuna_study.trials
        unfinished = any(self.optuna_study.is_open(number) for number in range(len(trials)))
        in_time = self.config.timeout is None or self._clock() - self._started_at < self.config.timeout
        return unfinished or (in_time and len(trials) < self.config.n_trials)

    def _open_batch(self) -> None:
        """Open the first batch with unfinished points, or else a new batch, and propose its missing points."""
        size, known = self.config.parallel_jobs, len(self.optuna_study.trials)
        unfinished = [number for number in range(known) if self.optuna_study.is_open(number)]
        first = (unfinished[0] if unfinished else known) // size * size
        for number in range(known, min(first + size, self.config.n_trials)):
            given = self.config.start[number] if number < len(self.config.start) else None
            sampler = make_sampler(self.config.seed, number, self.config.startup_trials)
            self.optuna_study.propose(number, sampler, given)
        self.series.write_plan(self._planned_trials())
        last = min(first + size, len(self.optuna_study.trials))
        numbers = [number for number in range(first, last) if self.optuna_study.is_open(number)]
        self._batch = [_PointTrials(number, self._trials_of(number)) for number in numbers]

    def _close_batch(self) -> None:
        """Store the outcomes of a batch, first all in one file and then in Optuna, so that a kill loses no outcome."""
        outcomes = {
            point.point: {"outcome": point.outcome, "value": statistics.fmean(point.values) if point.values else None}
            for point in self._batch
        }
        replace_file(self.series.path / OUTCOMES, json.dumps(outcomes, indent=1).encode())
        self._apply_outcomes()
        self._batch = []

    def _apply_outcomes(self) -> None:
        path = self.series.path / OUTCOMES
        outcomes: Mapping[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
        for point, found in outcomes.items():
            value = found["value"] if found["outcome"] == "completed" else None
            self.optuna_study.finish(int(point), found["outcome"], value)

    def _planned_trials(self) -> list[Trial]:
        return [trial for point in range(len(self.optuna_study.trials)) for trial in self._trials_of(point)]

    def _trials_of(self, point: int) -> list[Trial]:
        changes, seeds = self.optuna_study.changes(point), self._seeds
        return [Trial(point * len(seeds) + index, point, seed, changes) for index, seed in enumerate(seeds)]

    def _status(self, trial: Trial) -> TrialStatus:
        if trial.number in self._failures:
            return self._failures[trial.number]
        status = self.series.status(trial)
        pruned = status.state == "stopped" and self.optuna_study.trials[trial.point].state.name == "PRUNED"
        return replace(status, state="pruned", message="") if pruned else status

    def _point_of(self, trial: Trial) -> _PointTrials:
        return next(point for point in self._batch if point.point == trial.point)

    def _pruner(self) -> Any:
        pruning = self.config.pruning
        return import_optuna().pruners.PercentilePruner(
            pruning.percentile, n_startup_trials=pruning.startup_trials, n_warmup_steps=pruning.warmup_steps
        )

    @property
    def finished_count(self) -> int:
        """Number of points that are completed, pruned or failed."""
        return sum(trial.state.is_finished() for trial in self.optuna_study.trials)

    def completed(self) -> Sequence[TrialStatus]:
        """Return the trials of completed points."""
        states = [trial.state.name for trial in self.optuna_study.trials]
        return [status for status in self.statuses if states[status.trial.point] == "COMPLETE"]
