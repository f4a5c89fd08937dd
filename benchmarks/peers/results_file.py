"""Results file that is written after every run, so that a long benchmark can be interrupted and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class ResultsFile:
    """JSON file of results by key; the parts of a key are joined with slashes."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() and not fresh else {}

    def __contains__(self, key: tuple[str, ...]) -> bool:
        return "/".join(key) in self._results

    def __getitem__(self, key: tuple[str, ...]) -> Any:
        return self._results["/".join(key)]

    def put(self, key: tuple[str, ...], result: Any) -> None:
        self._results["/".join(key)] = result
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._results, indent=1, sort_keys=True) + "\n")
        partial.replace(self._path)
