"""The SQLite file of a store: opened for a moment at a time by any number of processes, and made anew when damaged.

All that is in it can be had again from elsewhere, so whatever cannot be read is thrown away.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

PATIENCE_SECONDS = 60.0
"""How long a process waits for others that write."""

_RETRY_SECONDS = 0.01
_MOST_MAKES = 3
_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)
_MOVED = 8 | 4 << 8
"""SQLITE_READONLY_DBMOVED: the file was deleted, or made anew by another, while it was open."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

Result = TypeVar("Result")


class Index:
    """One database file with one schema of one version."""

    def __init__(self, path: Path, schema: str, version: int) -> None:
        self._path, self._schema, self._version = path, schema, version
        self.damage: str | None = None
        """Why the file had to be made anew, if it was there."""

    def use(self, action: Callable[[sqlite3.Connection], Result], patience_seconds: float = PATIENCE_SECONDS) -> Result:
        """What ``action`` returns for an open database; one that is missing, damaged or of another version is made.

        An ``action`` that meets damage is done again from its beginning.
        """
        deadline, makes = time.monotonic() + patience_seconds, _MOST_MAKES
        while True:
            try:
                with self._opened(patience_seconds) as database:
                    return action(database)
            except sqlite3.Error as problem:
                if (is_busy(problem) or _moved(problem)) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                elif _is(problem, _UNUSABLE) and makes > 0:
                    makes -= 1
                    self._make_anew(problem)
                else:
                    raise

    @contextmanager
    def _opened(self, patience_seconds: float) -> Iterator[sqlite3.Connection]:
        uri = f"{self._path.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=patience_seconds, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = NORMAL")
            self._check_version(database)
            yield database

    def _check_version(self, database: sqlite3.Connection) -> None:
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found != self._version:
            raise _damage(f"its version is {found}, not {self._version}")

    def _make_anew(self, problem: sqlite3.Error) -> None:
        """One process does; others that wanted to find it done."""
        with _held(self._path.parent):
            if self._is_whole():
                return
            if self._path.exists():
                self.damage = str(problem)
            new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            try:
                self._make(new)
                # The log of a database that is gone must not be taken for the new one's.
                for old in (self._path, *_companions(self._path)):
                    old.unlink(missing_ok=True)
                new.rename(self._path)
            finally:
                for leftover in (new, *_companions(new)):
                    leftover.unlink(missing_ok=True)

    def _make(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(self._schema)
            database.execute(f"PRAGMA user_version = {self._version}")

    def _is_whole(self) -> bool:
        try:
            with self._opened(PATIENCE_SECONDS) as database:
                check_whole(database)
        except sqlite3.Error as problem:
            if _is(problem, _UNUSABLE):
                return False
            raise
        return True


class Transaction:
    """BEGIN … COMMIT, undone whole if anything in between, or the commit itself, fails."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")


def check_whole(database: sqlite3.Connection) -> None:
    """Raises if pages are damaged; a query alone may give nonsense instead."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _damage(str(found))


def _damage(what: str) -> sqlite3.DatabaseError:
    problem = sqlite3.DatabaseError(what)
    problem.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return problem


def memory_index(schema: str) -> sqlite3.Connection:
    """The same in memory, for a place that cannot be written to."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(schema)
    return database


def is_busy(problem: Exception) -> bool:
    """Whether others kept the database from us, and nothing is wrong with it."""
    return _is(problem, _BUSY)


def _moved(problem: sqlite3.Error) -> bool:
    return getattr(problem, "sqlite_errorcode", 0) == _MOVED


def _is(problem: Exception, codes: tuple[int, ...]) -> bool:
    # The low byte is the error, the rest says more about it.
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in codes


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
