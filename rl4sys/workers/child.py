"""Functions that make a child process end with its parent and ignore stop signals."""

from __future__ import annotations

import ctypes
import signal

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies, because an orphan could keep writing to a run."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM, which the whole process group may receive: the parent asks its children to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
