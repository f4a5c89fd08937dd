"""The store: all runs below a root folder, local or live, to find them again by what they are.

The run directories are the truth. ``registry.db`` in the root is an index of them: who reads it first brings it up to
date with the directories, which costs a few looks at each, and one that is lost or damaged is made anew from them.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rl4sys.config import did_you_mean
from rl4sys.errors import RunError
from rl4sys.experiment.index import PATIENCE_SECONDS, Index, Transaction, check_whole, is_busy, memory_index
from rl4sys.experiment.outcome import Outcome
from rl4sys.experiment.record import (
    CONFIG,
    METRICS,
    PROVENANCE,
    STATUS,
    TAGS,
    RunRecord,
    is_run,
    not_a_run,
    read_record,
    with_true_status,
)

FILE = "registry.db"
LOCAL, LIVE = Path("experiments"), Path("live")
"""Where runs are made unless something else is said: those trained here, and a server's policies."""

_VERSION = 2
_SCHEMA = """
CREATE TABLE runs (
  directory TEXT PRIMARY KEY, id TEXT NOT NULL, name TEXT NOT NULL, tags TEXT NOT NULL, algorithm TEXT NOT NULL,
  environment TEXT NOT NULL, seed TEXT NOT NULL, status TEXT NOT NULL, started TEXT NOT NULL,
  updated TEXT NOT NULL, finished TEXT,
  git_hash TEXT, config_hash TEXT NOT NULL, steps INTEGER NOT NULL, reward REAL, best_reward REAL,
  settings TEXT NOT NULL, outcome TEXT NOT NULL, stamps TEXT NOT NULL) WITHOUT ROWID;
"""
_STAMPED = (CONFIG, PROVENANCE, STATUS, TAGS, METRICS)
_TRAINED = (STATUS, METRICS)
_DEEPEST = 3
"""Folders below the root: those of a sweep, or of a user who sorts runs, hold runs as well."""
_SHOWN_MATCHES = 8

_log = logging.getLogger("rl4sys.store")
_told: set[Path] = set()

Result = TypeVar("Result")


class _Indexed(NamedTuple):
    """A row of the index: a run, and which files it was read from."""

    record: RunRecord
    stamps: str


class Store:
    """The runs below ``root``; ``notes`` gathers what the user should know about what was found there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._notes: dict[str, None] = {}
        self._index = Index(root / FILE, _SCHEMA, _VERSION)

    @property
    def notes(self) -> list[str]:
        return list(self._notes)

    def runs(self) -> list[RunRecord]:
        """Every run as it is now, oldest first; a directory that is damaged is noted and left out."""
        self._notes.clear()
        if not self.root.is_dir():
            return []
        try:
            found = self._index.use(self._refreshed)
        except (sqlite3.Error, OSError) as problem:
            self._note(
                f"{self.root / FILE} cannot be written ({problem}), so all runs were read from their directories"
            )
            with closing(memory_index(_SCHEMA)) as database:
                found = self._refreshed(database)
        if self._index.damage:
            self._note(f"{self.root / FILE} was unusable ({self._index.damage}) and was made anew from the runs")
            self._index.damage = None
        return sorted(map(with_true_status, found), key=lambda record: (record.started, record.path.name))

    def rebuild(self) -> list[RunRecord]:
        """The same from the directories alone: nothing the index said is believed."""
        if self.root.is_dir():
            # Not deleted: who reads at this moment must not miss any.
            self._index.use(lambda database: database.execute("UPDATE runs SET stamps = ''"))
        return self.runs()

    def update(self, path: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Bring one run's entry up to date with its directory, which may be gone."""
        self._index.use(lambda database: self._update(database, self._name(path)), patience_seconds)

    def _refreshed(self, database: sqlite3.Connection) -> list[RunRecord]:
        check_whole(database)
        indexed = {
            row["directory"]: str(row["stamps"]) for row in _select(database, "SELECT directory, stamps FROM runs")
        }
        directories = {self._name(path): path for path in run_directories(self.root, self._note)}
        for name in {**indexed, **directories}:
            if name not in directories or indexed.get(name) != _stamps(directories[name]):
                self._update(database, name)
        return [self._indexed(row).record for row in _select(database, "SELECT * FROM runs")]

    def _update(self, database: sqlite3.Connection, name: str) -> None:
        """In one transaction from reading to writing, so that what is written last was read last."""
        path = self.root / name
        with Transaction(database):
            known = self._known(database, name)
            database.execute("DELETE FROM runs WHERE directory = ?", (name,))
            if is_run(path):
                self._read_and_write(database, path, known)

    def _known(self, database: sqlite3.Connection, name: str) -> RunRecord | None:
        try:
            for row in _select(database, "SELECT * FROM runs WHERE directory = ? AND stamps != ''", name):
                return self._indexed(row).record
        except (TypeError, ValueError):
            # Damage that SQLite has not noticed; the entry is about to be written anew.
            return None
        return None

    def _read_and_write(self, database: sqlite3.Connection, path: Path, known: RunRecord | None) -> None:
        # Before the files are read: what changes meanwhile is seen to have changed.
        stamps = _stamps(path)
        try:
            _write(database, self._name(path), _Indexed(read_record(path, known), stamps))
        except RunError as problem:
            self._note(f"left out: {problem}")
        except (OverflowError, UnicodeError) as problem:
            # A number or letter that no database takes.
            self._note(f"left out: {path} is damaged: {problem!r}")

    def _indexed(self, row: Mapping[str, Any]) -> _Indexed:
        values = {name: row[name] for name in _PLAIN_COLUMNS} | {
            "path": self.root / row["directory"],
            "tags": tuple(json.loads(row["tags"])),
            "seed": int(row["seed"]),
            "settings": json.loads(row["settings"]),
            "outcome": Outcome(**json.loads(row["outcome"])),
        }
        record = RunRecord(**values)
        return _Indexed(record, row["stamps"])

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _note(self, message: str) -> None:
        self._notes[message] = None


def register(path: Path, *, wait: bool = True) -> None:
    """Bring the index of the root that a run lies in up to date with the run; without ``wait`` if nobody writes to it.

    Training never ends because of an index, which can be made again: what keeps it from being written is logged, once
    in the life of a process.
    """
    root = root_of(path)
    try:
        Store(root).update(path, PATIENCE_SECONDS if wait else 0.0)
    except (sqlite3.Error, OSError) as problem:
        if wait or not is_busy(problem):
            _tell(root, problem)


def _tell(root: Path, problem: Exception) -> None:
    if root not in _told:
        _told.add(root)
        _log.warning(
            "note: %s cannot be written: %s. Training goes on; `rl4sys list` finds the run by its directory",
            root / FILE,
            problem,
        )


def root_of(path: Path) -> Path:
    """The folder whose index a run belongs to: the nearest above it that has one, or else the one it lies in."""
    above = path.parents[:_DEEPEST]
    return next((folder for folder in above if (folder / FILE).is_file()), path.parent)


def find_run(text: str, root: Path) -> Path:
    """The run a user means: by its path, its directory's name below ``root``, its id, or the beginning of either.

    Where ``root`` is the usual one, the policies of a server that keeps its own in the usual place are found too.
    """
    for path in (Path(text), root / text):
        if text and is_run(path):
            return path
    if "/" in text:
        raise not_a_run(Path(text))
    records = [record for place in usual_roots(root) for record in Store(place).runs()]
    found = _matching(text, records)
    if len(found) == 1:
        return found[0].path
    if found:
        raise RunError(_ambiguous(text, found))
    raise not_a_run(Path(text)) if text in _folders_here() else RunError(_unknown(text, root, records))


def _folders_here() -> set[str]:
    return {entry.name for entry in os.scandir() if entry.is_dir()}


def usual_roots(root: Path) -> list[Path]:
    """``root``; and, where nothing but the usual one is asked for, that of a server beside it."""
    return [root, LIVE] if root == LOCAL and LIVE.is_dir() else [root]


def _matching(text: str, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Those of that name or id, or else those whose name or id begins so."""
    if not text:
        return []
    exact = [record for record in records if text in (record.id, record.path.name)]
    return exact or [record for record in records if record.id.startswith(text) or record.path.name.startswith(text)]


def _ambiguous(text: str, found: Sequence[RunRecord]) -> str:
    listed = ", ".join(f"{record.path} ({record.id})" for record in found[-_SHOWN_MATCHES:])
    more = f" and {len(found) - _SHOWN_MATCHES} older ones" if len(found) > _SHOWN_MATCHES else ""
    return f"{text!r} could be {len(found)} runs: {listed}{more}; write more of the name, the id, or the path"


def _unknown(text: str, root: Path, records: Sequence[RunRecord]) -> str:
    if not records:
        return f"no run {text!r}: there are no runs in {root}; name another folder with --root"
    names = [name for record in records for name in (record.path.name, record.name, record.id)]
    newest = ", ".join(record.path.name for record in records[-5:])
    return (
        f"no run in {root} has the name or id {text!r}{did_you_mean(text, names)} Newest: {newest}. See `rl4sys list`"
    )


def run_directories(folder: Path, note: Callable[[str], None], depth: int = 1) -> Iterator[Path]:
    """Every run below a folder; one that has been trained but lost its config is noted."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        if not _is_text(entry.name):
            note(f"left out: {path!r} has a name that is no text")
        elif is_run(path):
            yield path
        elif any((path / name).is_file() for name in _TRAINED):
            note(f"left out: {path} is damaged: it has no {CONFIG}")
        elif depth < _DEEPEST:
            yield from run_directories(path, note, depth + 1)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stamps(path: Path) -> str:
    """When the files of a run last changed, and how long they are."""
    return json.dumps([_stamp(path / name) for name in _STAMPED])


def _stamp(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]


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
"""Columns that hold what the field of a record of the same name does."""


def _write(database: sqlite3.Connection, directory: str, found: _Indexed) -> None:
    record = found.record
    values = {name: getattr(record, name) for name in _PLAIN_COLUMNS} | {
        "directory": directory,
        # SQLite's whole numbers end where seeds do not.
        "seed": str(record.seed),
        "tags": json.dumps(record.tags),
        "reward": record.reward,
        "best_reward": record.best_reward,
        "settings": json.dumps(record.settings, default=str),
        "outcome": json.dumps(asdict(record.outcome)),
        "stamps": found.stamps,
    }
    columns, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    database.execute(f"INSERT INTO runs ({columns}) VALUES ({places})", values)  # noqa: S608 - our own names


def _select(database: sqlite3.Connection, query: str, *values: str) -> list[dict[str, Any]]:
    cursor = database.execute(query, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
