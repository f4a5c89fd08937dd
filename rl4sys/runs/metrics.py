"""Writers and readers of metrics files: JSON lines with a step and the value of each metric."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rl4sys.errors import RunError
from rl4sys.metric_names import RETURN_METRICS
from rl4sys.runs.files import replace_file

if TYPE_CHECKING:
    from rl4sys.spec import State  # numpy would slow down commands that only read runs

_MAX_TAIL_BYTES = 16 * 2**20
_MAX_POINTS = 2000
_MAX_INTEGER = 2**63
"""Exclusive bound on the magnitude of integers in a row. Larger integers are treated as corrupt values."""

Points = list[tuple[int, float]]
"""Steps and values of one metric."""


class Logger(Protocol):
    """Destination of metrics rows."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsFile:
    """Writer of a metrics file. Rows are written without buffering and without a timestamp."""

    def __init__(self, path: Path, size: int) -> None:
        """Truncate the file to `size` bytes, because a resumed run writes the rows after its checkpoint again."""
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
        """Wait until all rows are on disk. Return the file size in bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


class Window:
    """Running means of all metrics added since the last call of `take`."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the mean of each metric and clear the window."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> State:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def restore(self, state: State) -> None:
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read all rows of a metrics file, or return an empty list if the file is missing.

    Ignores an incomplete last line, which a crash may leave. Raises ValueError for a corrupt row.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def read_valid_rows(path: Path, metric: str | None = None) -> list[dict[str, Any]]:
    """Read the rows of a metrics file, or only those with `metric`. Skips corrupt rows and rows without a step."""
    containing = b"" if metric is None else json.dumps(metric).encode()
    rows = _parse_lines(path, containing)
    return [row for row in rows if isinstance(row, dict) and is_number(row.get("step"))]


def metric_values(path: Path, name: str) -> list[float]:
    """Return all values of one metric in file order; NaN for values that are not numbers."""
    values = [row[name] for row in read_valid_rows(path, name) if name in row]
    return [float(value) if is_number(value) else float("nan") for value in values]


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a float or an integer of at most 63 bits."""
    return type(value) is float or (type(value) is int and abs(value) < _MAX_INTEGER)


def thin_metrics(path: Path, max_rows: int) -> None:
    """Reduce a file to about `max_rows` evenly spaced rows, plus all rows with the last or best value of a metric."""
    if not path.is_file():
        return
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    if len(lines) <= max_rows:
        return
    required = _last_and_best_rows([json.loads(line) for line in lines])
    kept = sorted({*range(0, len(lines), -(-len(lines) // max_rows)), *required})
    replace_file(path, b"".join(lines[index] for index in kept))


def _last_and_best_rows(rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the indices of the last row of each metric, and of the row with the best value of each return metric."""
    last = {name: index for index, row in enumerate(rows) for name in row}
    best = {
        name: max(candidates, key=lambda index: rows[index][name])
        for name in RETURN_METRICS
        # Skip NaN, which is not equal to itself, and rows without the metric.
        if (candidates := [i for i, row in enumerate(rows) if row.get(name, float("nan")) == row.get(name)])
    }
    return {*last.values(), *best.values()}


def _parse_lines(path: Path, containing: bytes) -> list[Any]:
    try:
        lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line and containing in line]
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise RunError(f"cannot read {path}: {problem.strerror}") from problem
    try:
        # Parsing one document takes half as long as parsing line by line.
        return list(json.loads(b"[" + b",".join(lines) + b"]"))
    except (ValueError, RecursionError):
        return [_parse_line(line) for line in lines]


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


class AppendedRows:
    """Reader of rows that are appended to a metrics file. Raises ValueError for a corrupt row."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def read(self) -> list[dict[str, Any]]:
        """Return the rows added since the last call."""
        if not self._path.is_file() or self._path.stat().st_size == self._read:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines = file.readlines()
        self._read += sum(map(len, lines))
        return [json.loads(line) for line in lines]


class MetricsTail:
    """Reader that follows a metrics file. `refresh` parses only new rows; corrupt rows are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self.step = 0
        self._clear()

    def refresh(self) -> None:
        try:
            size = self._path.stat().st_size
            if size < self._read:
                # A resumed run truncates the file to its checkpoint.
                self._clear()
            with self._path.open("rb") as file:
                file.seek(max(self._read, size - _MAX_TAIL_BYTES))
                content = file.read()
        except OSError:
            return
        complete = content[: content.rfind(b"\n") + 1]
        self._read = size - len(content) + len(complete)
        for line in complete.splitlines():
            self._add(line)

    def curves(self) -> dict[str, Points]:
        """Return the points of every metric, thinned to at most 2,001 each."""
        return {name: curve.points() for name, curve in self._curves.items()}

    def _clear(self) -> None:
        self._read = self.step = 0
        self.last: dict[str, float] = {}
        self._curves: dict[str, _ThinnedCurve] = {}

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            self.step = int(row.pop("step"))
            values = {name: float(value) for name, value in row.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            # The line is corrupt, or the incomplete first line after a seek in a very long file.
            return
        self.last.update(values)
        for name, value in values.items():
            self._curves.setdefault(name, _ThinnedCurve()).add(self.step, value)


class _ThinnedCurve:
    """Points of one metric. As the number of points grows, keeps only every 2nd, 4th, 8th, … and the last point."""

    def __init__(self) -> None:
        self._kept: Points = []
        self._every, self._count = 1, 0

    def add(self, step: int, value: float) -> None:
        self._last = step, value
        if self._count % self._every == 0:
            self._kept.append(self._last)
        self._count += 1
        if len(self._kept) > _MAX_POINTS:
            del self._kept[1::2]
            self._every *= 2

    def points(self) -> Points:
        return self._kept if self._kept[-1] == self._last else [*self._kept, self._last]
