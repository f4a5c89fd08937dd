"""The trials of a sweep or study, or any folder of runs that differ in their settings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl4sys.analysis.groups import Group, differences, flatten
from rl4sys.analysis.history import History, open_history
from rl4sys.analysis.metric_names import reward_of
from rl4sys.analysis.selection import runs_below
from rl4sys.config import Settings, load
from rl4sys.errors import RunError

_PLAN = "plan.json"
_SETTINGS = ("sweep.yaml", "study.yaml")
_FAILED = ("failed", "interrupted")


@dataclass(frozen=True)
class TrialResult:
    """One trial: what was changed in it, and what it came to."""

    name: str
    changes: Mapping[str, Any]
    seed: int | None
    state: str
    steps: int
    result: float | None
    reason: str
    """Why it failed; empty if it did not."""
    run: History | None


@dataclass(frozen=True)
class Sweep:
    """All trials, best first, and what they were judged by."""

    path: Path
    metric: str
    summary: str
    highest: bool
    trials: tuple[TrialResult, ...]
    settings: tuple[str, ...]
    """What was varied."""

    @property
    def completed(self) -> list[TrialResult]:
        """The trials that can be compared with one another."""
        return [trial for trial in self.trials if trial.state == "completed" and trial.result is not None]


@dataclass(frozen=True)
class _Judgement:
    metric: str
    summary: str
    highest: bool

    def of(self, run: History) -> float | None:
        curve = run.curve(self.metric)
        if curve is None:
            return None
        best = curve.best(highest=self.highest)[0]
        return {"final": curve.final, "best": best, "mean": float(curve.values.mean())}.get(self.summary, curve.final)


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep or study."""
    return (path / _PLAN).is_file() or any((path / name).is_file() for name in _SETTINGS)


def read_sweep(path: Path) -> Sweep:
    """A folder of trials."""
    settings = next((load(path / name) for name in _SETTINGS if (path / name).is_file()), {})
    planned = _plan(path)
    runs = {p.name: open_history(p) for p in runs_below(path)}
    if not planned and not runs:
        raise RunError(f"{path} holds no runs; give a run, or the folder of a sweep")
    judgement = _judgement(settings, list(runs.values()))
    rows = planned or [{"directory": name, "changes": changes} for name, changes in _changes(runs).items()]
    trials = [_trial(row, runs.get(str(row.get("directory"))), judgement) for row in rows]
    varied = dict.fromkeys(str(name) for trial in trials for name in trial.changes)
    return Sweep(
        path, judgement.metric, judgement.summary, judgement.highest, _ordered(trials, judgement.highest), tuple(varied)
    )


def reasons(trials: Sequence[TrialResult]) -> dict[str, list[str]]:
    """The failed trials by what went wrong, the most frequent first."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.reason:
            found.setdefault(trial.reason, []).append(trial.name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _judgement(settings: Settings, runs: Sequence[History]) -> _Judgement:
    wanted = str(settings.get("metric", "reward"))
    metric = reward_of(runs) if wanted == "reward" else wanted
    return _Judgement(
        metric, str(settings.get("summary", "final")), settings.get("direction", "maximize") == "maximize"
    )


def _plan(path: Path) -> list[dict[str, Any]]:
    if not (path / _PLAN).is_file():
        return []
    try:
        rows = json.loads((path / _PLAN).read_bytes())["trials"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(
            f"{path / _PLAN} cannot be read: {problem!r}; it should list the trials of the sweep"
        ) from problem
    return [row for row in rows if isinstance(row, dict)]


def _changes(runs: Mapping[str, History]) -> dict[str, Settings]:
    """What differs among runs that no plan tells of."""
    names = [d.setting for d in differences([Group(name, (run,)) for name, run in runs.items()])]
    flat = {name: flatten(run.settings) for name, run in runs.items()}
    return {name: {setting: flat[name].get(setting) for setting in names} for name in runs}


def _trial(row: Mapping[str, Any], run: History | None, judgement: _Judgement) -> TrialResult:
    changes = row.get("changes")
    state = run.state if run else "waiting"
    return TrialResult(
        name=str(row.get("directory")),
        changes=changes if isinstance(changes, dict) else {},
        seed=run.seed if run else row.get("seed"),
        state=state,
        steps=run.steps if run else 0,
        result=judgement.of(run) if run else None,
        reason=_reason(run) if run and state in _FAILED else "",
        run=run,
    )


def _reason(run: History) -> str:
    """The first line of what the run said when it failed."""
    said = str(run.status.get("error") or "").strip()
    return said.splitlines()[0] if said else f"{run.state} without a word"


def _ordered(trials: Sequence[TrialResult], highest: bool) -> tuple[TrialResult, ...]:
    """Completed ones by result, then the others as far as they got."""

    def place(trial: TrialResult) -> tuple[bool, float]:
        known = trial.state == "completed" and trial.result is not None and math.isfinite(trial.result)
        worth = 0.0 if trial.result is None else trial.result
        return not known, -worth if highest else worth

    return tuple(sorted(trials, key=place))
