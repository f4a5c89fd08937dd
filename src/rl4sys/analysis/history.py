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


@dataclass(frozen=True)
class History:
    """One run directory: its settings, and what became of it."""

    path: Path
    settings: Settings
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
    def state(self) -> str:
        """running, completed, stopped, failed; or unknown, where the run wrote no status."""
        return str(self.status.get("status", "unknown"))

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
        return read_curves(self.path / "metrics.jsonl")

    def _reached(self) -> list[Curve]:
        return [curve for curve in self.curves.values() if len(curve)]


def is_run(path: Path) -> bool:
    return (path / "configs" / "config.yaml").is_file()


def open_history(path: Path) -> History:
    """The run in a directory."""
    if not is_run(path):
        raise RunError(f"{path} is not a run directory: it has no configs/config.yaml")
    try:
        settings = load(path / "configs" / "config.yaml")
    except ConfigError as problem:
        raise RunError(f"the config of {path} cannot be read: {problem}") from problem
    return History(path, settings, _record(path / "status.json"), _record(path / "configs" / "provenance.json"))


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
