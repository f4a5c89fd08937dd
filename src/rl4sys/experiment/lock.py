"""Whose a run is at the moment: a lock on a file of its directory, which goes with the process that took it."""

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
"""Whoever looks whether a run is held holds it himself for an instant."""


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Have the run for this process alone; refused while another has it."""
    with (path / _FILE).open("w") as file:
        try:
            _lock(file)
        except BlockingIOError as problem:
            raise RunError(f"{path} is being trained by another process; wait for it or stop it") from problem
        yield


def is_held(path: Path) -> bool:
    """Whether a process has the run now."""
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
