"""SQLite file of a run store, shared by many processes that each open the file for a short time.

All rows can be read again from the run directories, so a corrupt file is replaced by an empty one.
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

TIMEOUT_SECONDS = 60.0
"""Maximum time to wait for other writers."""

_RETRY_SECONDS = 0.01
_TRIES = 3
_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)
_DELETED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR)
"""Error codes that SQLite may report for a file that was deleted while open."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

Result = TypeVar("Result")


class Index:
    """SQLite database file with a given schema and schema version."""

    def __init__(self, path: Path, schema: str, version: int) -> None:
        self._path, self._schema, self._version = path, schema, version
        self.corruption: str | None = None
        """Reason why an existing file had to be rebuilt, or None."""

    def use(self, action: Callable[[sqlite3.Connection], Result], timeout_seconds: float = TIMEOUT_SECONDS) -> Result:
        """Open the database, call `action` with the connection and return its result.

        A file that is missing, corrupt or of another schema version is first replaced by an empty one. If corruption is
        detected only during `action`, the file is replaced and `action` is called again.
        """
        deadline, tries = time.monotonic() + timeout_seconds, _TRIES
        while True:
            try:
                with self._opened(timeout_seconds) as database:
                    return action(database)
            except sqlite3.Error as problem:
                if is_busy(problem) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                elif _has_code(problem, (*_UNUSABLE, *_DELETED)) and tries > 0:
                    tries -= 1
                    self._rebuild_if_unusable(problem)
                else:
                    raise

    @contextmanager
    def _opened(self, timeout_seconds: float) -> Iterator[sqlite3.Connection]:
        with (
            _locked(self._path.parent, fcntl.LOCK_SH, wait=timeout_seconds > 0),
            closing(self._connect(timeout_seconds)) as database,
        ):
            yield database

    def _connect(self, timeout_seconds: float) -> sqlite3.Connection:
        uri = f"{self._path.resolve().as_uri()}?mode=rw"
        database = sqlite3.connect(uri, uri=True, timeout=timeout_seconds, isolation_level=None)
        try:
            # Training need not wait for the disk: the file is rebuilt if a power failure corrupts it.
            database.execute("PRAGMA synchronous = OFF")
            self._check_version(database)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _check_version(self, database: sqlite3.Connection) -> None:
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found != self._version:
            raise _corruption(f"the schema version is {found}, not {self._version}")

    def _rebuild_if_unusable(self, problem: sqlite3.Error) -> None:
        """Replace an unusable file by an empty one while no process has it open. A usable file is left unchanged."""
        with _locked(self._path.parent, fcntl.LOCK_EX):
            if self._is_usable():
                return
            if self._path.exists():
                self.corruption = str(problem)
            new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            try:
                self._create(new)
                # SQLite would apply the write-ahead log of the old file to the new one.
                for old in (self._path, *_companions(self._path)):
                    old.unlink(missing_ok=True)
                new.rename(self._path)
            finally:
                for leftover in (new, *_companions(new)):
                    leftover.unlink(missing_ok=True)

    def _create(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(self._schema)
            database.execute(f"PRAGMA user_version = {self._version}")

    def _is_usable(self) -> bool:
        try:
            with closing(self._connect(TIMEOUT_SECONDS)) as database:
                check_integrity(database)
        except sqlite3.Error as problem:
            if _has_code(problem, (*_UNUSABLE, *_DELETED)):
                return False
            raise
        return True


class Transaction:
    """Context manager for one transaction, which is rolled back if the body or the commit fails."""

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


def check_integrity(database: sqlite3.Connection) -> None:
    """Raise `sqlite3.DatabaseError` if pages are corrupt. A query of a corrupt file may return wrong rows."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _corruption(str(found))


def _corruption(message: str) -> sqlite3.DatabaseError:
    problem = sqlite3.DatabaseError(message)
    problem.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return problem


def memory_index(schema: str) -> sqlite3.Connection:
    """Return an empty database in RAM, for directories that are not writable."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(schema)
    return database


def is_busy(problem: Exception) -> bool:
    """Return whether an error means that another process is using the database."""
    return isinstance(problem, BlockingIOError) or _has_code(problem, _BUSY)


def _has_code(problem: Exception, codes: tuple[int, ...]) -> bool:
    # The low byte is the primary error code; the others refine it.
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in codes


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


@contextmanager
def _locked(directory: Path, kind: int, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock on the directory of the database: shared to open the file, exclusive to replace the file."""
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
        # Some network file systems cannot lock directories. Rows lost to concurrent rebuilds are read again later.
        return
