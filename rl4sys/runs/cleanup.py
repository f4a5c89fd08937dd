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
    """Runs to clean up, each with the number of bytes to free, and runs to keep unchanged, each with the reason."""

    strip: Mapping[Path, int]
    keep: Mapping[Path, str]

    @property
    def bytes(self) -> int:
        return sum(self.strip.values())


def plan_cleanup(runs: Sequence[RunSummary], rules: CleanupRules, now: datetime) -> CleanupPlan:
    """Select the runs to clean up and the runs to keep unchanged. Deletes nothing."""
    best, needed = _best_of_each_environment(runs, rules.keep_best), _needed(runs)
    strip: dict[Path, int] = {}
    keep: dict[Path, str] = {}
    for run in runs:
        reason = _reason_to_keep(run, rules, now) or needed.get(run.path, "") or best.get(run.path, "")
        freed = 0 if reason else RunDirectory(run.path).large_files_bytes()
        if freed:
            strip[run.path] = freed
        else:
            keep[run.path] = reason or "no large files"
    return CleanupPlan(strip, keep)


def strip_run(path: Path, now: datetime) -> None:
    """Delete checkpoints, logs and videos of a run, and thin its metrics. Raises `RunError` if the run is locked."""
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
        return "hosted policy"
    if now - datetime.fromisoformat(run.updated) < rules.keep_recent:
        return f"changed in the last {rules.keep_recent.days} days"
    return ""


def _best_of_each_environment(runs: Sequence[RunSummary], count: int) -> dict[Path, str]:
    """Return the runs with the best rewards in each environment, with the reason to keep them. Ignores debug runs."""
    results = [run for run in runs if run.best_reward is not None and not run.is_debug]
    ranked = sorted(results, key=lambda run: run.best_reward or 0.0)
    best: dict[Path, str] = {}
    for environment in {run.environment for run in ranked}:
        same = [run for run in ranked if run.environment == environment]
        best |= {run.path: f"among the best in {environment}" for run in same[len(same) - min(count, len(same)) :]}
    return best


def _needed(runs: Sequence[RunSummary]) -> dict[Path, str]:
    """Return trials of unfinished sweeps and runs used by the config of another run, with the reason to keep them."""
    by_path = {run.path.resolve(): run.path for run in runs}
    trials = [run.path for run in runs if _is_needed_by_sweep(run)]
    needed = {path: f"trial of {path.parent.name}, which has not finished" for path in trials}
    for run in runs:
        named = [by_path[folder] for folder in _paths_in(run.settings) if folder in by_path]
        needed |= {path: f"used by the config of {run.path.name}" for path in named if path != run.path}
    return needed


def _is_needed_by_sweep(run: RunSummary) -> bool:
    """Return whether a run is a trial that is not completed, or a trial of a sweep that has not finished.

    A resumed sweep continues the trials that are not completed, even if the sweep has a ranking.
    """
    return is_trial(run.path) and (run.status != "completed" or not is_finished(run.path.parent))


def _paths_in(settings: Any) -> Iterator[Path]:
    """Iterate over the settings that contain a slash, as absolute paths, and over the parents of these paths."""
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
