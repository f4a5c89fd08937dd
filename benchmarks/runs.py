"""Runs of shipped experiments, trained for a page of the docs: once, and found again afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path("experiments/results")
"""Where they are, unless said otherwise."""
SEEDS = (1, 2, 3)


def trained(arguments: list[str], seed: int, folder: Path) -> Path:
    """The directory of the run, which is made if it is not there."""
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
    """What ``rl4sys`` prints."""
    call = [sys.executable, "-m", "rl4sys.cli.main", *arguments]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
