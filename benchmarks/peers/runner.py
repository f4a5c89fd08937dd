"""Run the benchmark scripts of the compared libraries in their virtual environments and read the results."""

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
TIMEOUT_SECONDS = 3600
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
QUIET = {"PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}


class PeerFailedError(Exception):
    """Raised if the script of a library fails or takes too long. The message contains the end of its stderr."""


@dataclass(frozen=True)
class Library:
    """Library to compare, or variant of a library, with the script that trains its workloads."""

    name: str
    title: str
    script: str
    environment: str | None = None
    """Name of the virtual environment; None for the environment of this process."""
    overrides: dict[str, Any] = field(default_factory=dict, hash=False)
    """Fields to add or replace in the description of each workload."""
    pinned: bool = True
    """True to run the script on one core, False to run it on all available cores."""

    def prepare(self) -> None:
        if self.environment is not None:
            ENVIRONMENTS[self.environment].make()

    def run(self, work: dict[str, Any]) -> dict[str, Any]:
        """Run the workload in a separate process and return its result."""
        described = json.dumps({**work, "peer": self.environment, **self.overrides})
        command = [*self._pinning(), str(self._python()), str(HERE / f"{self.script}.py"), described]
        settings = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), **QUIET}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=settings, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as problem:
            raise PeerFailedError(f"{self.title}: timeout after {TIMEOUT_SECONDS} s") from problem
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            raise PeerFailedError(f"{self.title}: {' '.join(done.stderr.splitlines()[-3:])}")
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def _python(self) -> Path:
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS[self.environment].python

    def _pinning(self) -> list[str]:
        # The first core handles most of the work of the operating system.
        return ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))] if self.pinned else []


OURS = Library("ours", "RL4Sys", "ours")
SB3 = Library("sb3", "SB3", "sb3", "sb3")


@dataclass(frozen=True)
class Machine:
    """Machine and its load during a measurement."""

    processor: str
    cores: int
    load: float
    """Load average over the last minute."""
    python: str

    @classmethod
    def here(cls) -> Machine:
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = model.group(1) if model else platform.processor()
        return cls(processor, os.cpu_count() or 1, round(os.getloadavg()[0], 2), platform.python_version())

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, Python {self.python}, load {self.load:.1f} at the start"
