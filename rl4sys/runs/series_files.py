"""Files in the directory of a sweep or study, beside its trials.

`rl4sys.sweeps` writes these files. The analysis and the cleanup of runs read them without importing `rl4sys.sweeps`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl4sys.config import Settings, load
from rl4sys.errors import RunError
from rl4sys.runs.lock import is_locked

PLAN, RANKING = "plan.json", "ranking.json"
SWEEP_SETTINGS, STUDY_SETTINGS = "sweep.yaml", "study.yaml"
STUDY_DATABASE = "study.db"


def is_series(path: Path) -> bool:
    """Return whether a directory is the directory of a sweep or study."""
    return any((path / name).is_file() for name in (PLAN, SWEEP_SETTINGS, STUDY_SETTINGS))


def has_plan(path: Path) -> bool:
    """Return whether a directory has a list of planned trials."""
    return (path / PLAN).is_file()


def is_trial(run: Path) -> bool:
    """Return whether a run directory lies in the directory of a sweep or study with a plan."""
    return has_plan(run.parent)


def is_finished(path: Path) -> bool:
    """Return whether a sweep or study has a ranking and no process holds its lock."""
    return (path / RANKING).is_file() and not is_locked(path)


def read_series_settings(path: Path) -> Settings:
    """Read the settings file of a sweep or study; empty if there is no such file."""
    names = (SWEEP_SETTINGS, STUDY_SETTINGS)
    return next((load(path / name) for name in names if (path / name).is_file()), {})


def read_plan_rows(path: Path) -> list[dict[str, Any]]:
    """Read the planned trials of a sweep or study. Raises `RunError` if the plan is missing or corrupt."""
    try:
        rows = json.loads((path / PLAN).read_bytes())["trials"]
        return [row for row in rows if isinstance(row, dict)]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(
            f"{path / PLAN} cannot be read: {problem!r}; expected a JSON object with a list of trials"
        ) from problem
