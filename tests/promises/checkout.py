"""Temporary checkout with its own Python environment, in which the documented commands run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl4sys import _core
from tests.checkout import copy_checkout


@dataclass(frozen=True)
class Checkout:
    """Copy of the repository with a Python environment, installed as with ``pip install -e .``."""

    path: Path
    environment: Path

    def run(self, command: str, cwd: str = ".", timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a shell command and return its output. After ``timeout`` seconds, it is killed with its children."""
        with self.start(command, cwd) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                stop(process)
                output, _ = process.communicate()
                return subprocess.CompletedProcess(command, -1, f"{output}\n(stopped after {timeout} s)")
        return subprocess.CompletedProcess(command, process.returncode, output)

    def start(self, command: str, cwd: str = ".") -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.path / cwd,
            env={**os.environ, **self._variables()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _variables(self) -> dict[str, str]:
        path = f"{self.environment / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "COLUMNS": "160", "WANDB_MODE": "offline", "MUJOCO_GL": "egl", "VIRTUAL_ENV": ""}


def stop(process: subprocess.Popen[str]) -> None:
    """Kill all processes in the process group of a command, if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def make_checkout(folder: Path) -> Checkout:
    """Copy the repository and create its environment, which also contains all packages of the current environment."""
    checkout = Checkout(folder / "checkout", folder / "environment")
    copy_checkout(checkout.path)
    _install(checkout)
    return checkout


def _install(checkout: Checkout) -> None:
    """Reproduce the result of an editable install. Takes a second; pip would take a minute."""
    venv.create(checkout.environment, with_pip=False, symlinks=True)
    packages = checkout.environment / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "checkout.pth").write_text(f"{checkout.path}\n{sysconfig.get_path('platlib')}\n")
    core = Path(str(_core.__file__))
    shutil.copy2(core, checkout.path / "rl4sys" / core.name)
    scripts = tomllib.loads((checkout.path / "pyproject.toml").read_text())["project"]["scripts"]
    python = checkout.environment / "bin" / "python"
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        script = checkout.environment / "bin" / name
        script.write_text(f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
