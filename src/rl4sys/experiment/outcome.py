"""What the rows of a run come to: the last value of every metric, and the best returns."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

REWARDS = ("evaluation/return", "episode/return")
"""What a run is judged by: the first of these that it has."""

_CHECKED_BYTES = 512


@dataclass(frozen=True)
class Outcome:
    """Of the rows in the first ``size`` bytes of a metrics file, whose end has the checksum ``check``."""

    final: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    size: int = 0
    check: int = 0


def read_outcome(path: Path, before: Outcome | None = None) -> Outcome:
    """Reads only what was added since ``before``, if that is still what the file begins with.

    A row that is no object with a step is a `ValueError` or `TypeError`; a last line without its end counts not yet.
    """
    if not path.is_file():
        return Outcome()
    with path.open("rb") as file:
        start = before if before is not None and _begins_with(file, before) else Outcome()
        file.seek(start.size)
        return _extended(start, file)


def _extended(start: Outcome, file: BinaryIO) -> Outcome:
    final, best, step, size = dict(start.final), dict(start.best), start.step, start.size
    for line in _whole_lines(file):
        row = _row(line, size)
        size += len(line)
        step = int(row.pop("step"))
        final.update(row)
        for name in REWARDS:
            # Not max(): a NaN would stay for ever.
            if row.get(name, float("-inf")) > best.get(name, float("-inf")):
                best[name] = row[name]
    return Outcome(final, best, step, size, _check(file, size))


def _whole_lines(file: BinaryIO) -> Iterable[bytes]:
    return (line for line in file if line.endswith(b"\n"))


def _row(line: bytes, at: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"the row of metrics at byte {at} is not JSON: {problem}") from problem
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise TypeError(f"the row of metrics at byte {at} is {row!r:.60}, not an object with a step")
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


def _begins_with(file: BinaryIO, before: Outcome) -> bool:
    return _check(file, before.size) == before.check


def _check(file: BinaryIO, size: int) -> int:
    """A checksum of the bytes before ``size``; they differ where a resumed run wrote other rows."""
    start = max(0, size - _CHECKED_BYTES)
    file.seek(start)
    content = file.read(size - start)
    return zlib.crc32(content, len(content))
