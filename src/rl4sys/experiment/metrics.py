"""Measurements on their way to files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rl4sys.errors import RunError
from rl4sys.spec import State


class Logger(Protocol):
    """Somewhere that rows of metrics go."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsFile:
    """Rows as lines of JSON, handed to the system when `log` returns. Nothing in them depends on the clock."""

    def __init__(self, path: Path, size: int) -> None:
        """Goes on after the first ``size`` bytes: what a killed run wrote beyond its checkpoint is written anew."""
        try:
            path.touch()
            self._file = path.open("r+b", buffering=0)
            self._file.truncate(min(size, path.stat().st_size))
            self._file.seek(0, os.SEEK_END)
        except OSError as problem:
            raise RunError(f"cannot write metrics to {path}: {problem.strerror}") from problem

    def log(self, step: int, metrics: Mapping[str, float | str]) -> None:
        try:
            self._file.write(json.dumps({"step": step, **metrics}).encode() + b"\n")
        except OSError as problem:
            raise RunError(f"cannot write metrics to {self._file.name}: {problem.strerror}") from problem

    def sync(self) -> int:
        """Wait until all rows are on disk; returns how many bytes they take."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


class Window:
    """Means of what was measured since the last row."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> State:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def restore(self, state: State) -> None:
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows of a metrics file; a last line cut short by a crash is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
