"""What a run is doing, read from its files: nothing is opened, asked or waited for, so looking disturbs no training."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rl4sys.experiment.alertbook import FILE as ALERTS
from rl4sys.experiment.alertbook import read_alerts
from rl4sys.experiment.lock import is_held
from rl4sys.experiment.outcome import REWARDS
from rl4sys.experiment.record import CONFIG, CREATED, INTERRUPTED, METRICS, RUNNING, STATUS

_MOST_BYTES = 16 * 2**20
_MOST_POINTS = 2000
_ENDLESS = 10**11
"""More steps than anybody waits for: a live policy has no end."""

Curve = list[tuple[int, float]]
"""Steps and values."""


@dataclass(frozen=True)
class Glance:
    """One run at one moment; None for what is not known."""

    path: Path
    name: str
    algorithm: str = ""
    environment: str = ""
    seed: int | None = None
    state: str = CREATED
    """created, running, completed, stopped, failed or interrupted"""
    steps: int = 0
    total_steps: int | None = None
    version: int | None = None
    steps_per_second: float | None = None
    evaluation: float | None = None
    best: float | None = None
    memory_bytes: int | None = None
    silent_seconds: float | None = None
    """Since it last wrote its status."""
    row: Mapping[str, float] = field(default_factory=dict)
    """The newest value of every metric."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    alerts: tuple[Mapping[str, Any], ...] = ()
    """Everything told, oldest first."""
    problem: str = ""
    """What is the matter now, or was at the end."""

    @property
    def recent_return(self) -> float | None:
        return self.row.get("episode/return")

    @property
    def share(self) -> float | None:
        """How much of the training is done."""
        return min(1.0, self.steps / self.total_steps) if self.total_steps else None

    @property
    def seconds_left(self) -> float | None:
        if self.state != RUNNING or not self.total_steps or not self.steps_per_second:
            return None
        return max(0, self.total_steps - self.steps) / self.steps_per_second

    def reward_curve(self) -> Curve:
        """Of training episodes, which has the most points, or else of evaluations."""
        return next((self.curves[name] for name in reversed(REWARDS) if self.curves.get(name)), [])


class Watched:
    """One run directory, looked at again and again: rows and config are read once each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows = _Rows(path / METRICS)
        self._settings: dict[str, Any] | None = None

    def look(self) -> Glance:
        self._rows.refresh()
        status, age = _read_status(self.path / STATUS)
        settings = self._read_settings()
        state = _state(self.path, status)
        alerts = tuple(read_alerts(self.path / ALERTS))
        total = status.get("total_timesteps") or _block(settings, "training").get("total_timesteps")
        return Glance(
            path=self.path,
            name=str(_block(settings, "experiment").get("name", self.path.name)),
            algorithm=str(_block(settings, "algorithm").get("name", "")),
            environment=str(_block(settings, "environment").get("name", "")),
            seed=_block(settings, "experiment").get("seed"),
            state=state,
            steps=int(status.get("steps") or self._rows.step),
            total_steps=int(total) if total and total < _ENDLESS else None,
            version=status.get("version"),
            steps_per_second=status.get("steps_per_second"),
            evaluation=status.get("evaluation_return", self._rows.last.get("evaluation/return")),
            best=status.get("best_evaluation_return"),
            memory_bytes=_resident(status.get("pid")) if state == RUNNING else status.get("memory_bytes"),
            silent_seconds=age,
            row=self._rows.last,
            curves=self._rows.curves(),
            alerts=alerts,
            problem=_problem(state, alerts, age, settings),
        )

    def _read_settings(self) -> dict[str, Any]:
        if self._settings is None:
            try:
                found = yaml.safe_load((self.path / CONFIG).read_bytes())
            except (OSError, yaml.YAMLError, UnicodeDecodeError):
                return {}
            self._settings = found if isinstance(found, dict) else {}
        return self._settings


def last_word(path: Path) -> tuple[str, float]:
    """What a run says it is doing, and when it last did."""
    status, age = _read_status(path / STATUS)
    return str(status.get("status", CREATED)), time.time() - age if age is not None else _modified(path / CONFIG)


class _Course:
    """One metric over time; of very many points every second, then every fourth and so on, and always the last."""

    def __init__(self) -> None:
        self._kept: Curve = []
        self._every, self._count = 1, 0

    def add(self, step: int, value: float) -> None:
        self._last = step, value
        if self._count % self._every == 0:
            self._kept.append(self._last)
        self._count += 1
        if len(self._kept) > _MOST_POINTS:
            del self._kept[1::2]
            self._every *= 2

    def curve(self) -> Curve:
        return self._kept if self._kept[-1] == self._last else [*self._kept, self._last]


class _Rows:
    """A metrics file, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self.step = 0
        self._clear()

    def refresh(self) -> None:
        try:
            size = self._path.stat().st_size
            if size < self._read:
                # A resumed run writes anew what came after its checkpoint.
                self._clear()
            with self._path.open("rb") as file:
                file.seek(max(self._read, size - _MOST_BYTES))
                content = file.read()
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read = size - len(content) + len(whole)
        for line in whole.splitlines():
            self._take(line)

    def curves(self) -> dict[str, Curve]:
        return {name: course.curve() for name, course in self._courses.items()}

    def _clear(self) -> None:
        self._read = self.step = 0
        self.last: dict[str, float] = {}
        self._courses: dict[str, _Course] = {}

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            self.step = int(row.pop("step"))
            figures = {name: float(value) for name, value in row.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            # Not a row: the first line read of a very long file, or a damaged one.
            return
        self.last.update(figures)
        for name, value in figures.items():
            self._courses.setdefault(name, _Course()).add(self.step, value)


def _read_status(path: Path) -> tuple[dict[str, Any], float | None]:
    """What the run says of itself, and how many seconds ago; nothing where it has not, or not whole."""
    try:
        found = json.loads(path.read_bytes())
        age = max(0.0, time.time() - path.stat().st_mtime)
    except (OSError, ValueError):
        return {}, None
    return (found, age) if isinstance(found, dict) else ({}, None)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _state(path: Path, status: Mapping[str, Any]) -> str:
    said = str(status.get("status", CREATED))
    return INTERRUPTED if said == RUNNING and not is_held(path) else said


def _problem(state: str, alerts: tuple[Mapping[str, Any], ...], age: float | None, settings: Mapping[str, Any]) -> str:
    """What to show first: that nothing happens, or an alert that has not cleared."""
    if state == INTERRUPTED:
        return "no process trains it any more: rl4sys train --resume goes on with it"
    silence = _silence_allowed(settings)
    if state == RUNNING and age is not None and silence is not None and age > silence:
        return f"no_progress: no row for {age:,.0f} seconds"
    standing: dict[Any, str] = {}
    for alert in alerts:
        standing.pop(alert.get("rule"), None)
        if alert.get("status") == "firing":
            standing[alert.get("rule")] = f"{alert.get('rule')}: {alert.get('message')}"
    return next(reversed(standing.values()), "")


def _silence_allowed(settings: Mapping[str, Any]) -> float | None:
    rules = _block(_block(settings, "alerts"), "rules").values()
    bounds = [rule.get("seconds") for rule in rules if isinstance(rule, Mapping) and rule.get("kind") == "no_progress"]
    return min((float(bound) for bound in bounds if bound), default=None)


def _block(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = settings.get(name)
    return block if isinstance(block, Mapping) else {}


def _resident(pid: Any) -> int | None:
    try:
        return int(Path(f"/proc/{int(pid)}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, TypeError, IndexError):
        return None
