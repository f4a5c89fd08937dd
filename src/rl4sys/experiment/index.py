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
_TRIES = 3
_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)
_GONE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR)
"""What SQLite says, among other things, of a file that somebody deleted while it was open."""
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
        deadline, tries = time.monotonic() + patience_seconds, _TRIES
        while True:
            try:
                with self._opened(patience_seconds) as database:
                    return action(database)
            except sqlite3.Error as problem:
                if is_busy(problem) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                elif _is(problem, (*_UNUSABLE, *_GONE)) and tries > 0:
                    tries -= 1
                    self._make_anew_if_unusable(problem)
                else:
                    raise

    @contextmanager
    def _opened(self, patience_seconds: float) -> Iterator[sqlite3.Connection]:
        with (
            _locked(self._path.parent, fcntl.LOCK_SH, wait=patience_seconds > 0),
            closing(self._connected(patience_seconds)) as database,
        ):
            yield database

    def _connected(self, patience_seconds: float) -> sqlite3.Connection:
        uri = f"{self._path.resolve().as_uri()}?mode=rw"
        database = sqlite3.connect(uri, uri=True, timeout=patience_seconds, isolation_level=None)
        try:
            # What a power cut loses or spoils is made again; a run need not wait for a disk on its account.
            database.execute("PRAGMA synchronous = OFF")
            self._check_version(database)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _check_version(self, database: sqlite3.Connection) -> None:
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found != self._version:
            raise _damage(f"its version is {found}, not {self._version}")

    def _make_anew_if_unusable(self, problem: sqlite3.Error) -> None:
        """While nobody has it open. One process makes it; others that wanted to find it made."""
        with _locked(self._path.parent, fcntl.LOCK_EX):
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
            with closing(self._connected(PATIENCE_SECONDS)) as database:
                check_whole(database)
        except sqlite3.Error as problem:
            if _is(problem, (*_UNUSABLE, *_GONE)):
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
    return isinstance(problem, BlockingIOError) or _is(problem, _BUSY)


def _is(problem: Exception, codes: tuple[int, ...]) -> bool:
    # The low byte is the error, the rest says more about it.
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in codes


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


@contextmanager
def _locked(directory: Path, kind: int, *, wait: bool = True) -> Iterator[None]:
    """Shared by all that have the file open, alone for who puts another in its place."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _flock(descriptor: int, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        raise
    except OSError:
        # Some network file systems lock no directories. What is lost where two make the file at once is found again.
        return
