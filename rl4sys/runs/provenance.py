"""Provenance of a run: versions, machine, command and source revision."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl4sys.algorithms.device import available_device, instructions
from rl4sys.policy.draws import NATIVE
from rl4sys.version import __version__

_PACKAGES = ("torch", "numpy", "gymnasium", "box2d", "mujoco", "pydantic")


def provenance(device: str) -> dict[str, Any]:
    """Return the provenance of a run that starts now on the configured `device`."""
    return {
        "command": sys.argv,
        "git_hash": git_hash(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "cpu": _processor(),
        "instructions": instructions(),
        "device": available_device(device),
        "native_core": NATIVE,
        "packages": {"rl4sys": __version__} | {name: found for name in _PACKAGES if (found := _version(name))},
    }


def git_hash() -> str | None:
    """Return the git commit of the working directory, with `+changes` if dirty; None outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _processor() -> str:
    """Return the model name of the CPU, or an empty string."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


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
