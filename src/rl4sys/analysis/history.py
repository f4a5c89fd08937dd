"""What a run wrote down, read for analysis: nothing is built, imported or executed, and torch is not loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rl4sys.analysis.curves import Curve, make_curve
from rl4sys.config import Settings, load
from rl4sys.errors import ConfigError, RunError
from rl4sys.experiment.lock import is_held
from rl4sys.experiment.record import (
    CONFIG,
    CREATED,
    INTERRUPTED,
    METRICS,
    PROVENANCE,
    RUNNING,
    STATUS,
    config_hash,
    is_run,
    not_a_run,
)


@dataclass(frozen=True)
class History:
    """One run directory: its settings, and what became of it."""

    path: Path
    settings: Settings
    config_hash: str
    """The same for runs that differ by their seed alone, or by what does not change what is learnt."""
    state: str
    """As the store has it: created, running, completed, stopped, interrupted or failed."""
    status: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.setting("experiment.name", self.path.name))

    @property
    def seed(self) -> int | None:
        seed = self.setting("experiment.seed")
        return seed if isinstance(seed, int) else None

    @property
    def steps(self) -> int:
        reached = self.status.get("steps")
        return reached if isinstance(reached, int) else max((int(c.steps[-1]) for c in self._reached()), default=0)

    def setting(self, dotted: str, default: Any = None) -> Any:
        found: Any = self.settings
        for part in dotted.split("."):
            if not isinstance(found, Mapping) or part not in found:
                return default
            found = found[part]
        return found

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Every metric of the run by its name."""
        return read_curves(self.path / METRICS)

    def _reached(self) -> list[Curve]:
        return [curve for curve in self.curves.values() if len(curve)]


def open_history(path: Path) -> History:
    """The run in a directory."""
    if not is_run(path):
        raise not_a_run(path)
    try:
        settings = load(path / CONFIG)
        name_of_config = config_hash(settings)
    except (ConfigError, TypeError, ValueError) as problem:
        raise RunError(f"{path} is damaged: {problem}") from problem
    status = _record(path / STATUS)
    return History(path, settings, name_of_config, _state(path, status), status, _record(path / PROVENANCE))


def _state(path: Path, status: Mapping[str, Any]) -> str:
    """One that says it is running, though no process holds it, was interrupted."""
    said = str(status.get("status", CREATED))
    return INTERRUPTED if said == RUNNING and not is_held(path) else said


def read_curves(path: Path) -> dict[str, Curve]:
    """Every metric of a file of rows; a row cut short by a crash, or that is none, is left out."""
    steps: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for row in _rows(path):
        step = row.pop("step", None)
        if not _is_number(step):
            continue
        for name, value in row.items():
            if _is_number(value):
                steps.setdefault(name, []).append(int(step))
                values.setdefault(name, []).append(value)
    return {name: make_curve(steps[name], values[name]) for name in sorted(steps)}


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        raise RunError(f"cannot read {path}: {problem.strerror}") from problem
    return [row for line in lines if isinstance(row := _parsed(line), dict)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _record(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is none to read."""
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
