"""Ledger of the promises of five documents: one row per command, flag, class, file or feature, and its check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "ledger"


@dataclass(frozen=True)
class Run:
    """Shell command of a document, and the output that it should produce."""

    command: str
    """The command as the document gives it."""
    cwd: str = "."
    """Directory in the checkout."""
    args: str = ""
    """Arguments added for the test: a free port, few steps, a temporary directory."""
    expect: str = ""
    """Regular expression that the output of the successful command matches."""
    until: str = ""
    """The command runs until its output matches this expression, and is stopped then."""
    fails: str = ""
    """The command fails, and its last line matches this expression."""
    server: bool = False
    """The command needs a training server."""
    nightly: bool = False
    timeout: float = 120.0


@dataclass(frozen=True)
class Promise:
    """Row of the ledger. Exactly one or several checks are set."""

    document: str
    promise: str
    now: str
    became: str = ""
    """Reason if the promise has become something else."""
    planned: str = ""
    """Future feature that fulfils the promise. The check is expected to fail until then."""
    run: Run | None = None
    python: str = ""
    """Python statements that run without an error."""
    paths: list[str] = field(default_factory=list)
    """Paths that exist in the checkout."""
    test: str = ""
    """Test in this repository that proves the promise, as ``file::function``."""
    config: dict[str, Any] = field(default_factory=dict)
    """Settings that the example file of the document has after loading, by dotted key."""
    document_config: bool = False
    """The example experiment of the document proves the promise."""
    row: str = ""
    """Another promise of the document whose check covers this one."""

    @property
    def id(self) -> str:
        return f"{self.document}: {self.promise}"

    @property
    def checks(self) -> list[str]:
        """Names of the checks of this row."""
        names = ("run", "python", "paths", "test", "config", "document_config", "row")
        return [name for name in names if getattr(self, name)]


def read_ledger() -> dict[str, list[Promise]]:
    """Return the rows of each document."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def titles() -> dict[str, str]:
    """Return the title of each document."""
    return {path.stem: yaml.safe_load(path.read_text())["title"] for path in sorted(FOLDER.glob("*.yaml"))}


def all_promises() -> list[Promise]:
    return [row for rows in read_ledger().values() for row in rows]


def _read(path: Path) -> list[Promise]:
    rows = [Promise(document=path.stem, **row) for row in yaml.safe_load(path.read_text())["rows"]]
    return [replace(row, run=Run(**row.run)) if isinstance(row.run, dict) else row for row in rows]
