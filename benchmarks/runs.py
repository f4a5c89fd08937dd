"""Train shipped experiments for the results in docs/; completed runs are reused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path("experiments/results")
"""Default directory of the runs."""
SEEDS = (1, 2, 3)


def trained(arguments: list[str], seed: int, folder: Path) -> Path:
    """Return the directory of a completed run with this seed; train the run if it does not exist."""
    path = find(seed, folder)
    if path is None:
        command([*arguments, "--seed", str(seed), "--root", str(folder)])
        path = find(seed, folder)
    assert path is not None
    return path


def find(seed: int, folder: Path) -> Path | None:
    for config in sorted(folder.glob("*/configs/config.yaml")):
        settings: dict[str, Any] = yaml.safe_load(config.read_text())
        status = json.loads((config.parent.parent / "status.json").read_text())
        if settings["experiment"]["seed"] == seed and status["status"] == "completed":
            return config.parent.parent
    return None


def command(arguments: list[str]) -> str:
    """Run an ``rl4sys`` command and return its output."""
    call = [sys.executable, "-m", "rl4sys.cli.main", *arguments]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
