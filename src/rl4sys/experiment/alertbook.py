"""The file of a run's alerts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "alerts.jsonl"
"""Every alert of a run, and every one that cleared, a line of JSON each; kept over resumes."""


class Alertbook:
    """What a resumed run finds out again, at the same step and in the same words, is known already, and is not told
    twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: set[tuple[Any, ...]] | None = None

    def write(self, record: Mapping[str, Any]) -> bool:
        """Whether it was news."""
        if self._known is None:
            self._known = {_identity(earlier) for earlier in read_alerts(self.path)}
        if _identity(record) in self._known:
            return False
        self._known.add(_identity(record))
        with self.path.open("ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
        return True


def read_alerts(path: Path) -> list[dict[str, Any]]:
    """All lines of a file of alerts that can be read; none where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [record for record in map(_parsed, lines) if record is not None]


def _parsed(line: str) -> dict[str, Any] | None:
    """None of a line cut short by a crash."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _identity(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("rule", "status", "step", "message"))
