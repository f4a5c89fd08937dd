"""What a run was made with: versions, machine and source revision."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("rl4sys", "torch", "numpy", "gymnasium", "box2d", "mujoco", "pydantic")


def provenance() -> dict[str, Any]:
    return {
        "command": sys.argv,
        "git_hash": git_hash(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def git_hash() -> str | None:
    """The commit of the working directory's repository, with ``+changes`` if it is not clean; None outside one."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
