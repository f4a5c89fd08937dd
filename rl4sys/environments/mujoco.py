"""MuJoCo without a display: rendering backend and warnings."""

from __future__ import annotations

import logging
import os
from ctypes.util import find_library

_log = logging.getLogger("rl4sys.environments")
_logged: set[str] = set()


def choose_renderer(otherwise: str | None = None) -> None:
    """Select off-screen rendering if there is no display: EGL or ``otherwise`` for MuJoCo, no window for pygame.

    Environment variables set by the user take precedence.
    """
    if "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ:
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    renderer = "egl" if find_library("EGL") else otherwise
    if renderer is not None:
        os.environ.setdefault("MUJOCO_GL", renderer)


def log_mujoco_warnings_once() -> None:
    """Log each MuJoCo warning once per process. Call it before a model is loaded.

    By default MuJoCo repeats warnings on the terminal and in a file MUJOCO_LOG.TXT.
    """
    import mujoco

    mujoco.set_mju_user_warning(_on_warning)


def _on_warning(message: str) -> None:
    # Called from C: an exception here, such as a warning turned into an error, would end the process.
    warning, _, _ = message.partition(" Time =")
    if warning in _logged:
        return
    _logged.add(warning)
    # Deprecated elements of a model file concern its author only.
    _log.log(logging.DEBUG if "deprecated" in warning else logging.WARNING, "MuJoCo: %s", warning)
