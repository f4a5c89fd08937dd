"""Settings, status and learning curves of a run for analysis. Reading a run does not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.analysis.curves import Curve, make_curve
from rl4sys.analysis.statistics import Floats
from rl4sys.config import Settings
from rl4sys.runs.directory import RunDirectory, not_a_run
from rl4sys.runs.metrics import is_number

_EMPTY = make_curve([], [])


@dataclass(frozen=True)
class History:
    """One run: its settings, state and metrics over time."""

    directory: RunDirectory = field(repr=False, compare=False)
    path: Path
    settings: Settings
    config_hash: str
    """Hash of the settings that affect training; the seed and the name do not change it."""
    state: str
    """State of the run: created, running, completed, stopped, interrupted or failed."""
    status: Mapping[str, Any]
    provenance: Mapping[str, Any]
    _curves: dict[str, Curve] = field(default_factory=dict, compare=False, repr=False)

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
        """Curves of all metrics of the run, by metric name."""
        return read_curves(self.directory)

    def curve(self, name: str) -> Curve | None:
        """Return the curve of a metric, or None if it has no finite value. Rows without the metric are not parsed."""
        if "curves" in vars(self):
            self._curves.update(self.curves)
        if name not in self._curves:
            self._curves[name] = read_curves(self.directory, only=name).get(name, _EMPTY)
        found = self._curves[name]
        return found if len(found) else None

    def dropped(self, name: str) -> int:
        """Return the number of rows in which a metric was not a finite number."""
        self.curve(name)
        return self._curves[name].dropped if name in self._curves else 0


def open_history(path: Path) -> History:
    """Read a run directory. Raises `RunError` for a corrupt config; corrupt status and provenance files are ignored."""
    run = RunDirectory(path)
    if not run.exists:
        raise not_a_run(path)
    config, status = run.config(), run.status_or_empty()
    return History(run, path, config.settings, config.hash, run.state(status), status, run.provenance_or_empty())


def read_curves(run: RunDirectory, only: str | None = None) -> dict[str, Curve]:
    """Read the curves of all metrics of a run, skipping corrupt rows and, with `only`, rows without that metric."""
    parts: dict[str, list[tuple[Floats, Floats]]] = {}
    for rows in _group_by_metrics(run.valid_metric_rows(only)):
        steps, columns = _columns(rows)
        for name, values in columns.items():
            parts.setdefault(name, []).append((steps, values))
    return {name: _join(parts[name]) for name in sorted(parts)}


def _group_by_metrics(rows: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Group rows with the same metrics, because converting a group by columns is many times faster than row by row."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return groups.values()


def _columns(rows: list[dict[str, Any]]) -> tuple[Floats, dict[str, Floats]]:
    """Return the steps and the values of each metric; NaN for values that are not numbers."""
    if not {type(value) for row in rows for value in row.values()} <= {float, int}:
        rows = _numbers_only(rows)
    try:
        table = np.array([tuple(row.values()) for row in rows], dtype=np.float64)
    except OverflowError:
        table = np.array([tuple(row.values()) for row in _numbers_only(rows)], dtype=np.float64)
    columns = {name: table[:, index] for index, name in enumerate(rows[0])}
    steps = columns.pop("step")
    return steps, {n: values for n, values in columns.items() if any(row[n] is not None for row in rows)}


def _join(parts: list[tuple[Floats, Floats]]) -> Curve:
    steps, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(steps, kind="stable")
    return make_curve(steps[order], values[order])


def _numbers_only(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value if is_number(value) else None for name, value in row.items()} for row in rows]
