"""File lock that marks which process owns a run or a sweep. The kernel releases the lock when the process ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rl4sys.errors import RunError

_FILE = ".lock"
_TRIES, _RETRY_SECONDS = 10, 0.01
"""Number of attempts to lock, and seconds between attempts. A concurrent `is_locked` briefly holds the lock."""


@contextmanager
def directory_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a directory inside the context. Raises `RunError` if another process holds the lock."""
    # Opening for appending does not change the modification time of the file.
    with (path / _FILE).open("a") as file:
        try:
            _lock(file)
        except BlockingIOError as problem:
            raise RunError(
                f"{path} is being trained by another process; stop that process, or wait until it ends"
            ) from problem
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a directory."""
    try:
        with (path / _FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock(file: IO[str]) -> None:
    for _ in range(_TRIES - 1):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
