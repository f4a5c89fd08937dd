"""Run store: index over all runs below a root directory, local or live.

The run directories are authoritative. The file `registry.db` in the root is an SQLite index of these directories.
Every reader first updates the index, with a few `stat` calls per run. A deleted or corrupt index is rebuilt.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.database import TIMEOUT_SECONDS, Index, Transaction, check_integrity, is_busy, memory_index
from rl4sys.runs.directory import TAG_PATTERN, RunDirectory, is_run, root_candidates, run_directories
from rl4sys.runs.outcome import Outcome
from rl4sys.runs.summary import RunSummary, read_summary, with_current_status

FILE = "registry.db"
LOCAL, LIVE = Path("experiments"), Path("live")
"""Default roots of local runs and of the hosted policies of a server."""

_VERSION = 2
_SCHEMA = """
CREATE TABLE runs (
  directory TEXT PRIMARY KEY, id TEXT NOT NULL, name TEXT NOT NULL, tags TEXT NOT NULL, algorithm TEXT NOT NULL,
  environment TEXT NOT NULL, seed TEXT NOT NULL, status TEXT NOT NULL, started TEXT NOT NULL,
  updated TEXT NOT NULL, finished TEXT,
  git_hash TEXT, config_hash TEXT NOT NULL, steps INTEGER NOT NULL, reward REAL, best_reward REAL,
  settings TEXT NOT NULL, outcome TEXT NOT NULL, stamps TEXT NOT NULL) WITHOUT ROWID;
"""

_log = logging.getLogger("rl4sys.store")
_reported: set[Path] = set()
"""Roots for which a write error has been logged."""

Result = TypeVar("Result")


class _Row(NamedTuple):
    """Row of the index: the summary of a run, and the stamps of the files that the summary was read from."""

    summary: RunSummary
    stamps: str


class RunStore:
    """Access to all runs below `root`. Safe for concurrent use by many processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._notes: dict[str, None] = {}
        self._index = Index(root / FILE, _SCHEMA, _VERSION)

    @property
    def notes(self) -> list[str]:
        """Return messages for the user about the last call of `runs`, such as skipped directories."""
        return list(self._notes)

    def runs(self) -> list[RunSummary]:
        """Return the current summary of every run, oldest first. Skips corrupt directories and adds a note for each."""
        self._notes.clear()
        if not self.root.is_dir():
            return []
        try:
            found = self._index.use(self._refresh)
        except (sqlite3.Error, OSError) as problem:
            self._note(
                f"{self.root / FILE} cannot be written ({problem}), so all runs were read from their directories"
            )
            with closing(memory_index(_SCHEMA)) as database:
                found = self._refresh(database)
        if self._index.corruption:
            self._note(f"{self.root / FILE} was corrupt ({self._index.corruption}) and was rebuilt from the runs")
            self._index.corruption = None
        return sorted(map(with_current_status, found), key=lambda summary: (summary.started, summary.path.name))

    def rebuild(self) -> list[RunSummary]:
        """Rebuild the index from the directories, ignoring its content, and return all runs."""
        if self.root.is_dir():
            # Rows are not deleted, since a concurrent reader would miss them.
            self._index.use(lambda database: database.execute("UPDATE runs SET stamps = ''"))
        return self.runs()

    def update(self, path: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Update the index entry of the run at `path`; removes the entry if the directory was deleted."""
        self._index.use(lambda database: self._update(database, self._name(path)), timeout_seconds)

    def _refresh(self, database: sqlite3.Connection) -> list[RunSummary]:
        check_integrity(database)
        indexed = {
            row["directory"]: str(row["stamps"]) for row in _select(database, "SELECT directory, stamps FROM runs")
        }
        directories = {self._name(path): path for path in run_directories(self.root, self._note)}
        for name in {**indexed, **directories}:
            if name not in directories or indexed.get(name) != _stamps(directories[name]):
                self._update(database, name)
        return [self._parse_row(row).summary for row in _select(database, "SELECT * FROM runs")]

    def _update(self, database: sqlite3.Connection, name: str) -> None:
        """Replace the row of a run in one transaction, so that an older state never overwrites a newer one."""
        path = self.root / name
        with Transaction(database):
            known = self._known(database, name)
            database.execute("DELETE FROM runs WHERE directory = ?", (name,))
            if is_run(path):
                self._read_and_write(database, path, known)

    def _known(self, database: sqlite3.Connection, name: str) -> RunSummary | None:
        try:
            for row in _select(database, "SELECT * FROM runs WHERE directory = ? AND stamps != ''", name):
                return self._parse_row(row).summary
        except (TypeError, ValueError):
            # SQLite did not detect that this row is corrupt. The caller rewrites the row.
            return None
        return None

    def _read_and_write(self, database: sqlite3.Connection, path: Path, known: RunSummary | None) -> None:
        # Read the stamps before the files, so that the next update detects a change in between.
        stamps = _stamps(path)
        try:
            _insert(database, self._name(path), _Row(read_summary(path, known), stamps))
        except RunError as problem:
            self._note(f"skipped: {problem}")
        except (OverflowError, UnicodeError) as problem:
            # SQLite cannot store a number or character of the summary.
            self._note(f"skipped: {path} is damaged: {problem!r}")

    def _parse_row(self, row: Mapping[str, Any]) -> _Row:
        values = {name: row[name] for name in _PLAIN_COLUMNS} | {
            "path": self.root / row["directory"],
            "tags": tuple(json.loads(row["tags"])),
            "seed": int(row["seed"]),
            "settings": json.loads(row["settings"]),
            "outcome": Outcome(**json.loads(row["outcome"])),
        }
        return _Row(RunSummary(**values), row["stamps"])

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _note(self, message: str) -> None:
        self._notes[message] = None


def register(path: Path, *, wait: bool = True) -> None:
    """Update the index entry of a run. Without `wait`, do nothing if another process is writing to the index.

    Training must not fail because of an index that can be rebuilt, so errors are logged, once per process and root.
    """
    root = root_of(path)
    try:
        RunStore(root).update(path, TIMEOUT_SECONDS if wait else 0.0)
    except (sqlite3.Error, OSError) as problem:
        if wait or not is_busy(problem):
            _log_once(root, problem)


def _log_once(root: Path, problem: Exception) -> None:
    if root not in _reported:
        _reported.add(root)
        _log.warning(
            "note: %s cannot be written: %s. Training continues; `rl4sys list` finds the run by its directory",
            root / FILE,
            problem,
        )


def root_of(path: Path) -> Path:
    """Return the root of a run: the nearest directory above it with an index, or else its parent."""
    return next((folder for folder in root_candidates(path) if (folder / FILE).is_file()), path.parent)


def usual_roots(root: Path) -> list[Path]:
    """Return the roots to search: `root`, and the default root of servers if `root` is the default for training."""
    return [root, LIVE] if root == LOCAL and LIVE.is_dir() else [root]


def change_tags(path: Path, add: Iterable[str], remove: Iterable[str]) -> tuple[str, ...]:
    """Add and remove tags of a run. Return all tags of the run in the order they were added."""
    added, removed = list(add), list(remove)
    for tag in added:
        if not re.match(TAG_PATTERN, tag):
            raise ConfigError(
                f"{tag!r} is not a valid tag; use 1 to 60 letters, digits and characters of '. : / + - _', "
                "such as baseline"
            )
    before = read_summary(path).tags
    for tag in removed:
        if tag not in before:
            raise RunError(f"{path.name} has no tag {tag!r}; it has: {', '.join(before) or 'none'}")
    after = tuple(tag for tag in dict.fromkeys([*before, *added]) if tag not in removed)
    try:
        RunDirectory(path).write_tags(after)
    except OSError as problem:
        raise RunError(f"cannot write the tags of {path}: {problem.strerror}") from problem
    register(path)
    return after


def _stamps(path: Path) -> str:
    return json.dumps(RunDirectory(path).stamps())


_PLAIN_COLUMNS = (
    "id",
    "name",
    "algorithm",
    "environment",
    "status",
    "started",
    "updated",
    "finished",
    "git_hash",
    "config_hash",
    "steps",
)
"""Columns of the index with the same name and value as a field of `RunSummary`."""


def _insert(database: sqlite3.Connection, directory: str, row: _Row) -> None:
    summary = row.summary
    values = {name: getattr(summary, name) for name in _PLAIN_COLUMNS} | {
        "directory": directory,
        # Seeds may exceed the 64-bit integers of SQLite.
        "seed": str(summary.seed),
        "tags": json.dumps(summary.tags),
        "reward": summary.reward,
        "best_reward": summary.best_reward,
        "settings": json.dumps(summary.settings, default=str),
        "outcome": json.dumps(asdict(summary.outcome)),
        "stamps": row.stamps,
    }
    columns, parameters = ", ".join(values), ", ".join(f":{name}" for name in values)
    database.execute(f"INSERT INTO runs ({columns}) VALUES ({parameters})", values)  # noqa: S608 - fixed names


def _select(database: sqlite3.Connection, query: str, *values: str) -> list[dict[str, Any]]:
    cursor = database.execute(query, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
