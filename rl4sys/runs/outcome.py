"""Outcome of a run: the last value of every metric, and the best returns."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rl4sys.metric_names import RETURN_METRICS

_CHECKED_BYTES = 512


@dataclass(frozen=True)
class Outcome:
    """Last and best values in the first `size` bytes of a metrics file; `check` is a checksum of the last 512 bytes."""

    final: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    size: int = 0
    check: int = 0


def read_outcome(path: Path, before: Outcome | None = None) -> Outcome:
    """Read the outcome of a metrics file. If the file still starts with the rows of `before`, read only later rows.

    Raises ValueError or TypeError for a row that is not an object with a step. Ignores an incomplete last line.
    """
    if not path.is_file():
        return Outcome()
    with path.open("rb") as file:
        start = before if before is not None and _is_prefix(file, before) else Outcome()
        file.seek(start.size)
        return _extend(start, file)


def _extend(start: Outcome, file: BinaryIO) -> Outcome:
    final, best, step, size = dict(start.final), dict(start.best), start.step, start.size
    for line in _complete_lines(file):
        row = _parse_row(line, size)
        size += len(line)
        step = int(row.pop("step"))
        final.update(row)
        for name in RETURN_METRICS:
            # Do not use max(): it would keep NaN as the best value.
            if row.get(name, float("-inf")) > best.get(name, float("-inf")):
                best[name] = row[name]
    return Outcome(final, best, step, size, _check(file, size))


def _complete_lines(file: BinaryIO) -> Iterable[bytes]:
    return (line for line in file if line.endswith(b"\n"))


def _parse_row(line: bytes, at: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"the row of metrics at byte {at} is not JSON: {problem}") from problem
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise TypeError(f"the row of metrics at byte {at} is {row!r:.60}, not an object with a step")
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


def _is_prefix(file: BinaryIO, before: Outcome) -> bool:
    return _check(file, before.size) == before.check


def _check(file: BinaryIO, size: int) -> int:
    """Return a checksum of the last bytes before `size`. The checksum changes if a resumed run replaced rows."""
    start = max(0, size - _CHECKED_BYTES)
    file.seek(start)
    content = file.read(size - start)
    return zlib.crc32(content, len(content))
