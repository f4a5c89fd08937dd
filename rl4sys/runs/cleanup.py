"""Cleanup of old runs: delete checkpoints, logs and videos; keep config, provenance, status, tags and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rl4sys.errors import RunError
from rl4sys.runs.directory import RUNNING, RunDirectory
from rl4sys.runs.series_files import is_finished, is_trial
from rl4sys.runs.store import register
from rl4sys.runs.summary import RunSummary

_MAX_METRIC_ROWS = 1000
"""Number of metrics rows to keep, enough for a learning curve. Rows with last and best values are kept in addition."""


@dataclass(frozen=True)
class CleanupRules:
    """Criteria for runs that are exempt from cleanup."""

    keep_best: int
    """Number of runs to keep per environment, by best reward."""
    keep_recent: timedelta
    """Minimum time since the last update of a run before its files may be deleted."""


@dataclass(frozen=True)
class CleanupPlan:
    """Plan of a cleanup: the bytes freed by deleting the large files of each run, or the reason to keep the run."""

    strip: Mapping[Path, int]
    keep: Mapping[Path, str]

    @property
    def bytes(self) -> int:
        return sum(self.strip.values())


def plan_cleanup(runs: Sequence[RunSummary], rules: CleanupRules, now: datetime) -> CleanupPlan:
    """Decide which runs lose their large files. Deletes nothing."""
    best, needed = _best_of_each_environment(runs, rules.keep_best), _needed(runs)
    strip: dict[Path, int] = {}
    keep: dict[Path, str] = {}
    for run in runs:
        reason = _reason_to_keep(run, rules, now) or needed.get(run.path, "") or best.get(run.path, "")
        freed = 0 if reason else RunDirectory(run.path).large_files_bytes()
        if freed:
            strip[run.path] = freed
        else:
            keep[run.path] = reason or "has no large files"
    return CleanupPlan(strip, keep)


def strip_run(path: Path, now: datetime) -> None:
    """Delete checkpoints, logs and videos of a run, and thin its metrics. Raises `RunError` if a process trains it."""
    run = RunDirectory(path)
    try:
        with run.lock():
            if not is_trial(path):
                # Trials keep all rows, because a sweep may rank them by the mean of a metric.
                run.thin_metrics(_MAX_METRIC_ROWS)
            run.update_status(cleaned=now.isoformat(timespec="seconds"))
            run.delete_large_files()
    except OSError as problem:
        raise RunError(f"cannot clean up {path}: {problem}") from problem
    register(path)


def _reason_to_keep(run: RunSummary, rules: CleanupRules, now: datetime) -> str:
    if run.status == RUNNING:
        return "running"
    if RunDirectory(run.path).is_live:
        return "a policy of a server"
    if now - datetime.fromisoformat(run.updated) < rules.keep_recent:
        return f"younger than {rules.keep_recent.days} days"
    return ""


def _best_of_each_environment(runs: Sequence[RunSummary], count: int) -> dict[Path, str]:
    """Return the runs with the best rewards in each environment, without debug runs, with the reason to keep them."""
    results = [run for run in runs if run.best_reward is not None and not run.is_debug]
    ranked = sorted(results, key=lambda run: run.best_reward or 0.0)
    best: dict[Path, str] = {}
    for environment in {run.environment for run in ranked}:
        same = [run for run in ranked if run.environment == environment]
        best |= {run.path: f"among the best in {environment}" for run in same[len(same) - min(count, len(same)) :]}
    return best


def _needed(runs: Sequence[RunSummary]) -> dict[Path, str]:
    """Return trials of unfinished sweeps and runs that another config refers to, with the reason to keep them."""
    by_path = {run.path.resolve(): run.path for run in runs}
    needed = {run.path: f"a trial of {run.path.parent.name}, which is not done" for run in runs if _is_awaited(run)}
    for run in runs:
        named = [by_path[folder] for folder in _paths_in(run.settings) if folder in by_path]
        needed |= {path: f"needed by {run.path.name}" for path in named if path != run.path}
    return needed


def _is_awaited(run: RunSummary) -> bool:
    """Return whether a run is a trial that its sweep needs: the trial is not completed or the sweep is not finished.

    A resumed sweep continues trials that are not completed, even if it has a ranking.
    """
    return is_trial(run.path) and (run.status != "completed" or not is_finished(run.path.parent))


def _paths_in(settings: Any) -> Iterator[Path]:
    """Iterate over the absolute paths of all settings that contain a slash, and their parent directories."""
    for text in _strings(settings):
        if "/" in text:
            path = Path(text).resolve()
            yield from (path, *path.parents)


def _strings(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _strings(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from _strings(value)
