"""Runs a script of this folder in the environment of its peer, on so many cores, and reads the one line it prints."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.environments import ENVIRONMENTS

HERE = Path(__file__).parent
LONGEST_SECONDS = 3600
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
QUIET = {"PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}


class PeerFailedError(Exception):
    """A script did not come to its end; the text is the end of what it said."""


@dataclass(frozen=True)
class Entrant:
    """One that does a work: a peer, or one of our variants."""

    name: str
    title: str
    script: str
    environment: str | None = None
    """Whose virtual environment it runs in; None for that of this process."""
    changes: dict[str, Any] = field(default_factory=dict, hash=False)
    """What its description of the work has besides."""
    pinned: bool = True
    """On one core; else on all that this process may use."""

    def prepare(self) -> None:
        if self.environment is not None:
            ENVIRONMENTS[self.environment].make()

    def run(self, work: dict[str, Any]) -> dict[str, Any]:
        """Do the work in a process of its own; what it hands over."""
        described = json.dumps({**work, "peer": self.environment, **self.changes})
        command = [*self._on_its_cores(), str(self._python()), str(HERE / f"{self.script}.py"), described]
        settings = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), **QUIET}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=settings, timeout=LONGEST_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as problem:
            raise PeerFailedError(f"{self.title}: not done after {LONGEST_SECONDS} s") from problem
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            raise PeerFailedError(f"{self.title}: {' '.join(done.stderr.splitlines()[-3:])}")
        handed_over: dict[str, Any] = json.loads(lines[-1])
        return handed_over

    def _python(self) -> Path:
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS[self.environment].python

    def _on_its_cores(self) -> list[str]:
        # The first core has the most of the system's own work.
        return ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))] if self.pinned else []


OURS = Entrant("ours", "RL4Sys", "ours")
SB3 = Entrant("sb3", "SB3", "sb3", "sb3")


@dataclass(frozen=True)
class Machine:
    """Where and amid what figures were made."""

    processor: str
    cores: int
    load: float
    """Mean number of busy processes over the minute before."""
    python: str

    @classmethod
    def here(cls) -> Machine:
        told = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = told.group(1) if told else platform.processor()
        return cls(processor, os.cpu_count() or 1, round(os.getloadavg()[0], 2), platform.python_version())

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, Python {self.python}, load {self.load:.1f} at the start"
