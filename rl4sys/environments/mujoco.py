"""Rendering of MuJoCo without a display, and logging of MuJoCo warnings."""

from __future__ import annotations

import logging
import os
from ctypes.util import find_library

_log = logging.getLogger("rl4sys.environments")
_logged: set[str] = set()


def choose_renderer(otherwise: str | None = None) -> None:
    """Select off-screen rendering if there is no display. MuJoCo uses EGL or, without EGL, the backend ``otherwise``.

    Also prevents windows of Pygame. Environment variables set by the user take precedence.
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
    # C code calls this function, so an exception, such as a warning turned into an error, would end the process.
    warning, _, _ = message.partition(" Time =")
    if warning in _logged:
        return
    _logged.add(warning)
    # Only the author of a model file needs warnings about deprecated elements in the file.
    _log.log(logging.DEBUG if "deprecated" in warning else logging.WARNING, "MuJoCo: %s", warning)
