"""Figures that are written down as they come, so that a long benchmark can be broken off and taken up again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Ledger:
    """A JSON file of figures by key; a key's parts are put together with slashes."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self._path = path
        self._kept: dict[str, Any] = json.loads(path.read_text()) if path.is_file() and not anew else {}

    def __contains__(self, key: tuple[str, ...]) -> bool:
        return "/".join(key) in self._kept

    def __getitem__(self, key: tuple[str, ...]) -> Any:
        return self._kept["/".join(key)]

    def put(self, key: tuple[str, ...], figure: Any) -> None:
        self._kept["/".join(key)] = figure
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._kept, indent=1, sort_keys=True) + "\n")
        partial.replace(self._path)
