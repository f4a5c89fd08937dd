"""A series of trials, one directory::

<name>_<timestamp>/
  sweep.yaml or study.yaml   the settings of the series
  base.yaml                  the config that its trials change, spelt out
  plan.json                  every trial: number, point, seed, changes
  trial_000/, trial_001/, …  a run directory each, with output.log besides: what its process printed
  ranking.json               points from best to worst, their seeds taken together
  best.yaml                  the best point as a config to train
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from rl4sys import config
from rl4sys.config import Config, Settings
from rl4sys.errors import ConfigError, RunError
from rl4sys.experiment.config import ExperimentConfig, parse_experiment
from rl4sys.experiment.files import replace_file
from rl4sys.experiment.lock import hold
from rl4sys.experiment.metrics import read_metrics
from rl4sys.experiment.outcome import REWARDS
from rl4sys.experiment.run import Run, new_directory
from rl4sys.experiment.store import Store, register
from rl4sys.lab.trials import EVALUATION, Standing, Task, Trial

PLAN, BASE = "plan.json", "base.yaml"
_OURS = {
    "experiment.seed": "give the seeds as `seeds`",
    "experiment.name": "trials are named by the series and their point",
    "experiment.threads": "each trial computes with one",
}


class SeriesConfig(Config):
    """What sweeps and studies have in common."""

    base_config: str
    """The experiment that all trials start from: a file, or the name of a shipped one."""
    name: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    """First part of the directory's name; that of the file if none is given."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Settings of the experiment that are changed for all trials, by their dotted names."""
    seeds: list[int] = Field(default_factory=list)
    """Seeds that every point is trained with, a trial for each; the experiment's own if none are given."""
    parallel_jobs: int = Field(default=1, gt=0)
    """How many trials run at once, each a process with one thread; no more than there are cores."""
    retries: int = Field(default=2, ge=0)
    """How often a trial whose process was killed is taken up again from its checkpoint before it counts as failed."""
    metric: str = "reward"
    """What points are ranked by: a name in metrics.jsonl, or reward: the mean return of evaluations."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether more of the metric is better, or less."""
    summary: Literal["final", "best", "mean"] = "final"
    """What a trial is given for its metric: the last value, the best one, or the mean of all."""

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or any(seed < 0 for seed in seeds):
            raise ValueError("seeds are different whole numbers from 0")
        return seeds

    @field_validator("sweep", "search", "fixed", check_fields=False)
    @classmethod
    def _check_keys(cls, changes: dict[str, Any]) -> dict[str, Any]:
        for key in changes:
            if key in _OURS:
                raise ValueError(f"{key} is not to be changed here: {_OURS[key]}")
        return changes

    @property
    def row_name(self) -> str:
        """The metric as metrics.jsonl has it."""
        return EVALUATION if self.metric == "reward" else self.metric


SomeConfig = TypeVar("SomeConfig", bound=SeriesConfig)


@dataclass(frozen=True)
class Series:
    """A directory of trials, and what they start from."""

    path: Path
    settings: SeriesConfig
    base: Settings

    def config(self, trial: Trial) -> ExperimentConfig:
        """What the trial is trained with."""
        settings = changed(self.base, trial.changes)
        settings = config.change(settings, "experiment.seed", trial.seed)
        settings = config.change(settings, "experiment.name", f"{self.settings.name}_{trial.point:03d}")
        return parse_experiment(settings)

    def task(self, trial: Trial, *, waits: bool) -> Task:
        return Task(
            trial.number, self.run_path(trial), self.config(trial).to_settings(), self.settings.row_name, waits=waits
        )

    def run_path(self, trial: Trial) -> Path:
        return self.path / trial.directory

    def standing(self, trial: Trial) -> Standing:
        """As the trial's directory has it; one that was running when it was last heard of was stopped."""
        status = self.run_path(trial) / "status.json"
        if not status.is_file():
            return Standing(trial)
        try:
            record = json.loads(status.read_bytes())
            said, steps, total = record["status"], record.get("steps", 0), record.get("total_timesteps", 0)
        except (OSError, ValueError, KeyError) as problem:
            raise RunError(
                f"{status} cannot be read: {problem!r}; remove {status.parent} to train it anew"
            ) from problem
        return Standing(
            trial,
            said if said in ("completed", "failed") else "stopped",
            steps,
            total,
            self.value(trial),
            record.get("error", ""),
        )

    def value(self, trial: Trial) -> float | None:
        """What the trial is ranked by, as far as it got."""
        metrics = self.run_path(trial) / "metrics.jsonl"
        rows = read_metrics(metrics) if metrics.is_file() else []
        names = REWARDS if self.settings.metric == "reward" else (self.settings.metric,)
        found = [[row[name] for row in rows if name in row] for name in names]
        values = next(filter(None, found), None)
        if values is None:
            return None
        best = max if self.settings.direction == "maximize" else min
        return float(
            {"final": values[-1], "best": best(values), "mean": sum(values) / len(values)}[self.settings.summary]
        )

    def write_plan(self, trials: Sequence[Trial]) -> None:
        """Every trial there is, for whoever wants to know what was changed in which."""
        rows = [{**asdict(trial), "directory": trial.directory} for trial in trials]
        replace_file(self.path / PLAN, json.dumps({"trials": rows}, indent=1).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the series for this process; another that wants it is refused, and a dead one holds nothing."""
        with hold(self.path):
            # Trials are entered in the nearest index above them, which is to be that of all runs.
            Store(self.path.parent).runs()
            yield


def note_failure(path: Path, message: str) -> None:
    """Have a run's status say that it failed, and why; a directory that never became a run has none."""
    if not Run.exists(path):
        return
    status = path / "status.json"
    record = json.loads(status.read_bytes()) if status.is_file() else {}
    replace_file(status, json.dumps({**record, "status": "failed", "error": message}, indent=1).encode())
    register(path)


def create_series(root: Path, settings: SeriesConfig, base: Settings, now: datetime) -> Series:
    """A new directory, with the base; the settings are written by `seal`, when all else is there."""
    try:
        path = new_directory(root, f"{settings.name}_{now:%Y%m%d-%H%M%S}")
        replace_file(path / BASE, config.to_yaml(base).encode())
    except OSError as problem:
        raise RunError(f"cannot write to {root}: {problem.strerror}; choose another place with --root") from problem
    return Series(path, settings, base)


def seal(series: Series, name: str) -> None:
    """Write the settings as ``name``: a directory that has them is whole."""
    replace_file(series.path / name, config.to_yaml(series.settings.model_dump(mode="json")).encode())


def open_series(path: Path, model: type[SomeConfig], name: str) -> Series:
    """An existing directory, by the name of its file of settings."""
    if not (path / name).is_file():
        raise RunError(f"{path} cannot be resumed: it has no {name}")
    settings = config.parse(model, config.load(path / name))
    return Series(path, settings, config.load(path / BASE))


def read_plan(series: Series) -> list[Trial]:
    try:
        rows = json.loads((series.path / PLAN).read_bytes())["trials"]
        return [Trial(row["number"], row["point"], row["seed"], row["changes"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(f"{series.path / PLAN} cannot be read: {problem!r}") from problem


def read_settings(model: type[SomeConfig], source: str, group: str, assignments: Sequence[str]) -> SomeConfig:
    """The settings in a file, with what was changed on the command line; changes of the experiment become ``fixed``."""
    settings = config.load(source, group)
    own, of_experiment = [], {}
    for assignment in assignments:
        key = assignment.partition("=")[0]
        if key.partition(".")[0] in ExperimentConfig.model_fields:
            of_experiment[key] = _value(assignment)
        else:
            own.append(assignment)
    settings = config.override(settings, own)
    if of_experiment:
        settings = {**settings, "fixed": {**(settings.get("fixed") or {}), **of_experiment}}
    settings.setdefault("name", config.find(source, group=group).stem)
    return config.parse(model, settings)


def _value(assignment: str) -> Any:
    """The value alone of ``key.path=value``, read as YAML."""
    key = assignment.partition("=")[0]
    found: Any = config.override({}, [assignment])
    for part in key.split("."):
        found = found[part]
    return found


def read_base(settings: SeriesConfig, source: Path) -> ExperimentConfig:
    """The experiment that trials start from, with what is fixed for all of them."""
    path = config.find(settings.base_config, source.parent)
    base = changed(config.load(path), settings.fixed)
    # Several trials share the cores, and with one thread results do not depend on how many there are.
    base = config.change(base, "experiment.threads", 1)
    try:
        return parse_experiment(base, path.parent)
    except ConfigError as problem:
        raise ConfigError(f"base_config {settings.base_config}: {problem}") from problem


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    for key, value in changes.items():
        settings = config.change(settings, key, value)
    return settings
