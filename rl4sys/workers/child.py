"""Setup of a child process: end with the parent, ignore stop signals."""

from __future__ import annotations

import ctypes
import signal

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies; an orphan could keep writing to a run."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM sent to the process group: the parent asks children to stop, and they save first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
