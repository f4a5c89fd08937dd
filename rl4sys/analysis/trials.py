"""Trials of a sweep or study, or of any folder of runs with different settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl4sys.analysis.groups import Group, differences, flatten
from rl4sys.analysis.history import History, open_history
from rl4sys.config import Settings
from rl4sys.errors import RunError
from rl4sys.metric_names import REWARD
from rl4sys.runs.directory import runs_below
from rl4sys.runs.scoring import TrialScoring, choose_scoring
from rl4sys.runs.series_files import has_plan, read_plan_rows, read_series_settings

_FAILED = ("failed", "interrupted")


@dataclass(frozen=True)
class TrialResult:
    """Settings, state and score of one trial."""

    name: str
    changes: Mapping[str, Any]
    seed: int | None
    state: str
    steps: int
    result: float | None
    reason: str
    """Reason why the trial failed; empty if it did not fail."""
    run: History | None


@dataclass(frozen=True)
class SweepResults:
    """All trials of a sweep or study, best first, with the metric and summary that determine their scores."""

    path: Path
    metric: str
    summary: str
    highest: bool
    trials: tuple[TrialResult, ...]
    settings: tuple[str, ...]
    """Names of the settings that were varied."""

    @property
    def completed(self) -> list[TrialResult]:
        """Completed trials with a score; only these are comparable."""
        return [trial for trial in self.trials if trial.state == "completed" and trial.result is not None]


def read_sweep(path: Path) -> SweepResults:
    """Read a folder of trials. Raises `RunError` if the folder has neither a plan nor runs."""
    settings, planned = read_series_settings(path), read_plan_rows(path) if has_plan(path) else []
    runs = {p.name: open_history(p) for p in runs_below(path)}
    if not planned and not runs:
        raise RunError(f"{path} contains no runs; give a run, or the folder of a sweep")
    scoring = _scoring(settings, list(runs.values()))
    rows = planned or [{"directory": name, "changes": changes} for name, changes in _changes(runs).items()]
    trials = [_trial(row, runs.get(str(row.get("directory"))), scoring) for row in rows]
    varied = tuple(dict.fromkeys(str(name) for trial in trials for name in trial.changes))
    ordered = _ordered(trials, highest=scoring.maximize)
    return SweepResults(path, scoring.metric, scoring.summary, scoring.maximize, ordered, varied)


def failure_reasons(trials: Sequence[TrialResult]) -> dict[str, list[str]]:
    """Return the names of failed trials by reason, most frequent reason first."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.reason:
            found.setdefault(trial.reason, []).append(trial.name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _scoring(settings: Settings, runs: Sequence[History]) -> TrialScoring:
    metric, summary = str(settings.get("metric", REWARD)), str(settings.get("summary", "final"))
    direction = str(settings.get("direction", "maximize"))
    return choose_scoring([run.directory for run in runs], metric, summary, direction)


def _changes(runs: Mapping[str, History]) -> dict[str, Settings]:
    """Return for each run the values of the settings in which the runs differ, as a substitute for a plan."""
    names = [d.setting for d in differences([Group(name, (run,)) for name, run in runs.items()])]
    flat = {name: flatten(run.settings) for name, run in runs.items()}
    return {name: {setting: flat[name].get(setting) for setting in names} for name in runs}


def _trial(row: Mapping[str, Any], run: History | None, scoring: TrialScoring) -> TrialResult:
    changes = row.get("changes")
    state = run.state if run else "waiting"
    return TrialResult(
        name=str(row.get("directory")),
        changes=changes if isinstance(changes, dict) else {},
        seed=run.seed if run else row.get("seed"),
        state=state,
        steps=run.steps if run else 0,
        result=scoring.score(run.directory) if run else None,
        reason=_reason(run) if run and state in _FAILED else "",
        run=run,
    )


def _reason(run: History) -> str:
    """Return the reason of a failure: the first line of the error message."""
    message = str(run.status.get("error") or "").strip()
    return message.splitlines()[0] if message else f"{run.state} without an error message"


def _ordered(trials: Sequence[TrialResult], *, highest: bool) -> tuple[TrialResult, ...]:
    """Sort trials by score, completed trials first."""

    def key(trial: TrialResult) -> tuple[bool, float]:
        known = trial.state == "completed" and trial.result is not None and math.isfinite(trial.result)
        score = 0.0 if trial.result is None else trial.result
        return not known, -score if highest else score

    return tuple(sorted(trials, key=key))
