"""What a run wrote down, read for analysis: nothing is built, imported or executed, and torch is not loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.analysis.curves import Curve, make_curve
from rl4sys.analysis.statistics import Floats
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

_EMPTY = make_curve([], [])
_LARGEST = 2**63
"""Steps and counts from there on are no such things."""


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
    _read: dict[str, Curve] = field(default_factory=dict, compare=False, repr=False)

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
        if isinstance(reached, int):
            return reached
        return max((int(curve.steps[-1]) for curve in self.curves.values() if len(curve)), default=0)

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

    def curve(self, name: str) -> Curve | None:
        """One metric, without reading the rows of others; None where the run has no value of it, or no finite one."""
        if "curves" in vars(self):
            self._read.update(self.curves)
        if name not in self._read:
            self._read[name] = read_curves(self.path / METRICS, only=name).get(name, _EMPTY)
        found = self._read[name]
        return found if len(found) else None

    def dropped(self, name: str) -> int:
        """In how many rows a metric was not a finite number."""
        self.curve(name)
        return self._read[name].dropped if name in self._read else 0


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


def read_curves(path: Path, only: str | None = None) -> dict[str, Curve]:
    """Every metric of a file of rows, or of those rows that have the metric ``only``.

    A row cut short by a crash, or that is none, is left out.
    """
    parts: dict[str, list[tuple[Floats, Floats]]] = {}
    for rows in _alike(_rows(path, b"" if only is None else json.dumps(only).encode())):
        steps, columns = _columns(rows)
        for name, values in columns.items():
            parts.setdefault(name, []).append((steps, values))
    return {name: _curve(parts[name]) for name in sorted(parts)}


def _alike(rows: list[Any]) -> Iterable[list[dict[str, Any]]]:
    """Rows that have the same metrics together, to be read column by column: many times faster than one by one."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(row, dict) and _is_number(row.get("step")):
            found.setdefault(tuple(row), []).append(row)
    return found.values()


def _columns(rows: list[dict[str, Any]]) -> tuple[Floats, dict[str, Floats]]:
    """The steps, and each metric's values at them; what is not a number counts as none."""
    if not {type(value) for row in rows for value in row.values()} <= {float, int}:
        rows = _numbers_only(rows)
    try:
        table = np.array([tuple(row.values()) for row in rows], dtype=np.float64)
    except OverflowError:
        table = np.array([tuple(row.values()) for row in _numbers_only(rows)], dtype=np.float64)
    columns = {name: table[:, place] for place, name in enumerate(rows[0])}
    steps = columns.pop("step")
    return steps, {n: values for n, values in columns.items() if any(row[n] is not None for row in rows)}


def _curve(parts: list[tuple[Floats, Floats]]) -> Curve:
    steps, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(steps, kind="stable")
    return make_curve(steps[order], values[order])


def _rows(path: Path, holding: bytes) -> list[Any]:
    """The lines that hold these bytes, as JSON."""
    try:
        lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line and holding in line]
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise RunError(f"cannot read {path}: {problem.strerror}") from problem
    try:
        # In one piece: half as long as line by line.
        return list(json.loads(b"[" + b",".join(lines) + b"]"))
    except (ValueError, RecursionError):
        return [_parsed(line) for line in lines]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _LARGEST)


def _numbers_only(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value if _is_number(value) else None for name, value in row.items()} for row in rows]


def _record(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is none to read."""
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
