"""How pictures are drawn where there is no display."""

from __future__ import annotations

import os
from ctypes.util import find_library


def choose_renderer(otherwise: str | None = None) -> None:
    """MuJoCo draws with EGL, which needs none, or ``otherwise``; pygame without a window. What the user set stays."""
    if "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ:
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    renderer = "egl" if find_library("EGL") else otherwise
    if renderer is not None:
        os.environ.setdefault("MUJOCO_GL", renderer)
