"""Ledger of the promises of five documents: one row per command, flag, class, file or feature, and its check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "ledger"


@dataclass(frozen=True)
class Run:
    """Shell command from a document and the output that it should produce."""

    command: str
    """Command exactly as in the document."""
    cwd: str = "."
    """Working directory, relative to the checkout."""
    args: str = ""
    """Arguments added for the test, such as a free port, fewer steps or a temporary directory."""
    expect: str = ""
    """Regular expression that the output of the command must match; the command must succeed."""
    until: str = ""
    """Regular expression; the command is stopped as soon as its output matches it."""
    fails: str = ""
    """Regular expression for the error message of a command that must fail."""
    server: bool = False
    """True if the command needs a training server."""
    nightly: bool = False
    timeout: float = 120.0


@dataclass(frozen=True)
class Promise:
    """Row of the ledger with at least one check."""

    document: str
    promise: str
    """Key of the row, which is unique within the document."""
    now: str
    """Current equivalent of the promise."""
    shown: str = ""
    """Text of the promise in docs/documents.md; empty if the key is shown."""
    became: str = ""
    """Reason why the promise is fulfilled in another way than documented; empty if it is fulfilled as documented."""
    planned: str = ""
    """Future feature that will fulfil the promise. Until the feature exists, the check is expected to fail."""
    run: Run | None = None
    python: str = ""
    """Python statements that must run without an error."""
    paths: list[str] = field(default_factory=list)
    """Paths that must exist in the checkout."""
    test: str = ""
    """Test in this repository that proves the promise, as ``file::function``."""
    config: dict[str, Any] = field(default_factory=dict)
    """Expected settings, by dotted key, after loading the example client config of the document."""
    document_config: bool = False
    """True if the example experiment of the document proves the promise."""
    row: str = ""
    """Promise of the same document whose check also covers this promise."""

    @property
    def id(self) -> str:
        return f"{self.document}: {self.promise}"

    @property
    def checks(self) -> list[str]:
        """Names of the checks of this row."""
        names = ("run", "python", "paths", "test", "config", "document_config", "row")
        return [name for name in names if getattr(self, name)]


def read_ledger() -> dict[str, list[Promise]]:
    """Return the rows of the ledger by document."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def titles() -> dict[str, str]:
    """Return the titles of the documents by file name."""
    return {path.stem: yaml.safe_load(path.read_text())["title"] for path in sorted(FOLDER.glob("*.yaml"))}


def all_promises() -> list[Promise]:
    return [row for rows in read_ledger().values() for row in rows]


def _read(path: Path) -> list[Promise]:
    rows = [Promise(document=path.stem, **row) for row in yaml.safe_load(path.read_text())["rows"]]
    return [replace(row, run=Run(**row.run)) if isinstance(row.run, dict) else row for row in rows]
