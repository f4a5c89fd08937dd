"""What MuJoCo complains of, told once; by itself it fills the terminal and a file MUJOCO_LOG.TXT."""

from __future__ import annotations

import logging

_log = logging.getLogger("rl4sys.environments")
_told: set[str] = set()


def tell_mujoco_warnings_once() -> None:
    """For this process; call it before a model is loaded."""
    import mujoco

    mujoco.set_mju_user_warning(_hear)


def _hear(message: str) -> None:
    # It is called from C, where an exception, such as that of a warning turned into an error, would end the process.
    complaint, _, _ = message.partition(" Time =")
    if complaint in _told:
        return
    _told.add(complaint)
    # What is deprecated in the file of a model is for its author to know.
    _log.log(logging.DEBUG if "deprecated" in complaint else logging.WARNING, "MuJoCo: %s", complaint)
