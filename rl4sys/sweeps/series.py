"""Series of trials (a sweep or a study) in one directory.

<name>_<timestamp>/
  sweep.yaml or study.yaml   config of the series
  base.yaml                  config of the base experiment, with all settings
  plan.json                  all trials: number, point, seed, changes
  trial_000/, trial_001/, …  run directories, each with output.log: the output of the trial's process
  ranking.json               points from best to worst, averaged over seeds
  best.yaml                  config of the best point, for rl4sys train
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from rl4sys.config import Config, Settings, change, find, load, override, parse, to_yaml
from rl4sys.errors import ConfigError, RunError
from rl4sys.metric_names import REWARD
from rl4sys.runs.config import ExperimentConfig, convert_variant, parse_experiment
from rl4sys.runs.directory import RunDirectory, reported_state, runs_below
from rl4sys.runs.files import replace_file
from rl4sys.runs.lock import directory_lock
from rl4sys.runs.run import new_directory
from rl4sys.runs.scoring import TrialScoring, choose_scoring
from rl4sys.runs.series_files import PLAN, read_plan_rows
from rl4sys.runs.store import RunStore, register
from rl4sys.sweeps.trials import EVALUATION, Trial, TrialStatus, TrialTask

_log = logging.getLogger("rl4sys.sweeps")

BASE = "base.yaml"
_RESERVED = {
    "experiment.seed": "list the seeds under `seeds`",
    "experiment.name": "trials are named after the series and their point",
    "experiment.threads": "each trial uses one thread",
}


class SeriesConfig(Config):
    """Config fields shared by sweeps and studies."""

    base_config: str
    """Experiment that all trials start from: a file, or the name of a shipped experiment."""
    name: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    """First part of the directory name; defaults to the name of the sweep or study file."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Settings of the experiment to change for all trials, by dotted name."""
    seeds: list[int] = Field(default_factory=list)
    """Seeds for training; every point gets one trial per seed. Defaults to the seed of the experiment."""
    parallel_jobs: int = Field(default=1, gt=0)
    """Number of trials that run in parallel, each in a process with one thread; limited to the number of cores."""
    retries: int = Field(default=2, ge=0)
    """Maximum number of restarts of a killed trial from its checkpoint before it is marked as failed."""
    metric: str = REWARD
    """Metric that ranks the points: a name in metrics.jsonl, or reward for the mean evaluation return."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Direction in which the metric improves."""
    summary: Literal["final", "best", "mean"] = "final"
    """Score of a trial: the last value (final), the best value or the mean value of the metric."""

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or any(seed < 0 for seed in seeds):
            raise ValueError("expected distinct non-negative integers")
        return seeds

    @field_validator("sweep", "search", "fixed", check_fields=False)
    @classmethod
    def _check_keys(cls, changes: dict[str, Any]) -> dict[str, Any]:
        for key in changes:
            if key in _RESERVED:
                raise ValueError(f"'{key}' cannot be changed by a sweep or study: {_RESERVED[key]}")
        return changes

    @property
    def row_name(self) -> str:
        """Name of the metric in metrics.jsonl."""
        return EVALUATION if self.metric == REWARD else self.metric


SomeConfig = TypeVar("SomeConfig", bound=SeriesConfig)


@dataclass(frozen=True)
class Series:
    """Directory of trials, its config, and the settings of the base experiment."""

    path: Path
    config: SeriesConfig
    base: Settings

    def trial_config(self, trial: Trial) -> ExperimentConfig:
        settings = apply_changes(self.base, trial.changes)
        settings = change(settings, "experiment.seed", trial.seed)
        settings = change(settings, "experiment.name", f"{self.config.name}_{trial.point:03d}")
        return parse_experiment(settings)

    def task(self, trial: Trial, *, waits_for_decision: bool) -> TrialTask:
        settings = self.trial_config(trial).to_settings()
        return TrialTask(trial.number, self.run_path(trial), settings, self.config.row_name, waits_for_decision)

    def run_path(self, trial: Trial) -> Path:
        return self.path / trial.directory

    def scoring(self) -> TrialScoring:
        """Choose the scoring for all trials, from the metrics of the trials that already have a run directory."""
        config, runs = self.config, [RunDirectory(path) for path in runs_below(self.path)]
        return choose_scoring(runs, config.metric, config.summary, config.direction)

    def statuses(self, trials: Iterable[Trial]) -> list[TrialStatus]:
        """Read the status of each trial, all scored by the same metric."""
        scoring = self.scoring()
        return [self.status(trial, scoring) for trial in trials]

    def status(self, trial: Trial, scoring: TrialScoring | None = None) -> TrialStatus:
        """Read the status of a trial from its directory. A trial marked as running is reported as stopped."""
        stored = RunDirectory(self.run_path(trial)).status()
        if not stored:
            return TrialStatus(trial)
        state = reported_state(stored)
        return TrialStatus(
            trial,
            state if state in ("completed", "failed") else "stopped",  # type: ignore[arg-type]
            stored.get("steps", 0),
            stored.get("total_timesteps", 0),
            self.score(trial, scoring),
            stored.get("error", ""),
        )

    def score(self, trial: Trial, scoring: TrialScoring | None = None) -> float | None:
        """Return the score of a trial so far, or None if the score is missing or not finite."""
        return (scoring or self.scoring()).score(RunDirectory(self.run_path(trial)))

    def rescore(self, statuses: Iterable[TrialStatus]) -> list[TrialStatus]:
        """Recompute all scores with the same metric, because trials may report different return metrics in training."""
        scoring = self.scoring()
        return [replace(status, value=self.score(status.trial, scoring)) for status in statuses]

    def write_plan(self, trials: Sequence[Trial]) -> None:
        """Write number, point, seed, changes and directory of every trial."""
        rows = [{**asdict(trial), "directory": trial.directory} for trial in trials]
        replace_file(self.path / PLAN, json.dumps({"trials": rows}, indent=1).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the series. Raises `RunError` if another live process holds it."""
        with directory_lock(self.path):
            # A trial registers in the nearest run store above its directory, so create the store of the root first.
            RunStore(self.path.parent).runs()
            yield


def record_failure(path: Path, message: str) -> None:
    """Mark a run as failed and write the reason to its status. Does nothing if `path` is not a run."""
    run = RunDirectory(path)
    if run.exists:
        run.update_status(status="failed", error=message)
        register(path)


def create_series(root: Path, config: SeriesConfig, base: Settings, now: datetime) -> Series:
    """Create the directory of a series with its base config. The caller writes the config last, with `write_config`."""
    try:
        path = new_directory(root, f"{config.name}_{now:%Y%m%d-%H%M%S}")
        replace_file(path / BASE, to_yaml(base).encode())
    except OSError as problem:
        raise RunError(f"cannot write to {root}: {problem.strerror}; choose another folder with --root") from problem
    return Series(path, config, base)


def write_config(series: Series, name: str) -> None:
    """Write the config of a series to the file `name`. Only a directory with this file can be resumed."""
    replace_file(series.path / name, to_yaml(series.config.model_dump(mode="json")).encode())


def open_series(path: Path, model: type[SomeConfig], name: str) -> Series:
    """Open an existing series; `name` is the name of its config file."""
    if not (path / name).is_file():
        raise RunError(f"{path} cannot be resumed: it has no {name}")
    return Series(path, parse(model, load(path / name)), load(path / BASE))


def read_plan(series: Series) -> list[Trial]:
    rows = read_plan_rows(series.path)
    try:
        return [Trial(row["number"], row["point"], row["seed"], row["changes"]) for row in rows]
    except KeyError as problem:
        raise RunError(f"{series.path / PLAN} cannot be read: {problem!r}") from problem


def read_series_config(model: type[SomeConfig], source: str, group: str, assignments: Sequence[str]) -> SomeConfig:
    """Read a sweep or study file and apply command line assignments; experiment settings are added to `fixed`."""
    settings = load(source, group)
    settings.setdefault("name", find(source, group=group).stem)
    return parse_series_config(model, settings, {a.partition("=")[0]: _assigned_value(a) for a in assignments})


def parse_series_config(model: type[SomeConfig], settings: Settings, changes: Mapping[str, Any]) -> SomeConfig:
    """Parse the settings of a sweep or study after `changes`; changed experiment settings are added to `fixed`."""
    experiment = {
        key: value for key, value in changes.items() if key.partition(".")[0] in ExperimentConfig.model_fields
    }
    settings = apply_changes(settings, {key: value for key, value in changes.items() if key not in experiment})
    if experiment:
        settings = {**settings, "fixed": {**(settings.get("fixed") or {}), **experiment}}
    return parse(model, settings)


def _assigned_value(assignment: str) -> Any:
    """Return the value of a ``key.path=value`` assignment, parsed as YAML."""
    key = assignment.partition("=")[0]
    found: Any = override({}, [assignment])
    for part in key.split("."):
        found = found[part]
    return found


def read_base(config: SeriesConfig, source: Path) -> ExperimentConfig:
    """Read the base experiment and apply `fixed`. Relative paths are resolved against the directory of `source`."""
    path = find(config.base_config, source.parent)
    return parse_base(config, convert_variant(load(path), _log.info), path.parent)


def parse_base(config: SeriesConfig, settings: Settings, beside: Path | None) -> ExperimentConfig:
    """Parse the settings of the base experiment with `fixed` applied. Plugin files are also searched in ``beside``."""
    base = apply_changes(settings, config.fixed)
    # Trials share the cores, and with one thread the results do not depend on the number of cores.
    base = change(base, "experiment.threads", 1)
    try:
        return parse_experiment(base, beside)
    except ConfigError as problem:
        raise ConfigError(f"base_config {config.base_config}: {problem}") from problem


def apply_changes(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    for key, value in changes.items():
        settings = change(settings, key, value)
    return settings
