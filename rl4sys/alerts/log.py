"""Writer and reader of the alert log of a run (alerts.jsonl)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "alerts.jsonl"
"""Name of the alert log in a run directory: JSON lines, one per fired or cleared alert; kept across resumes."""


class AlertLog:
    """Writer of the alert log. Skips alerts that a resumed run repeats (same rule, status, step and message)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: set[tuple[Any, ...]] | None = None

    def write(self, record: Mapping[str, Any]) -> bool:
        """Append an alert. Return False if the log already contains the alert."""
        if self._known is None:
            self._known = {_identity(earlier) for earlier in read_alerts(self.path)}
        if _identity(record) in self._known:
            return False
        self._known.add(_identity(record))
        with self.path.open("ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
        return True


def read_alerts(path: Path) -> list[dict[str, Any]]:
    """Read all valid lines of an alert log. Return an empty list if there is no file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [record for record in map(_parse_line, lines) if record is not None]


def _parse_line(line: str) -> dict[str, Any] | None:
    """Parse a line of the log. Return None for an incomplete line, which a crash may leave."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _identity(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("rule", "status", "step", "message"))
