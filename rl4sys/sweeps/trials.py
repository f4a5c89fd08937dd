"""Trials of a sweep or study: their tasks, events and status.

A trial is one run; its run directory is named after the number of the trial. A `TrialTask` contains plain settings and
a path, so any engine with access to this path can run or resume the trial.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rl4sys.config import Settings

TrialState: TypeAlias = Literal["waiting", "running", "completed", "stopped", "pruned", "failed"]

EVALUATION = "evaluation/return"
"""Name of the evaluation return in metrics.jsonl; in config files the name is `reward`."""

OUTPUT = "output.log"
"""File in a trial's directory with the output of its process."""


@dataclass(frozen=True)
class Trial:
    """One run of a series: a point (the changed settings) and a seed."""

    number: int
    point: int
    seed: int
    changes: Mapping[str, Any]
    """Changed settings by dotted name."""

    @property
    def directory(self) -> str:
        return f"trial_{self.number:03d}"


@dataclass(frozen=True)
class TrialTask:
    """Data for starting or resuming a trial on any machine with access to the run directory."""

    number: int
    path: Path
    settings: Settings
    metric: str
    waits_for_decision: bool
    """True if the trial waits after each evaluation for the decision to continue or stop."""


@dataclass(frozen=True)
class TrialStatus:
    """State of a trial, its progress and its newest score."""

    trial: Trial
    state: TrialState = "waiting"
    steps: int = 0
    total_timesteps: int = 0
    value: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Progressed:
    """Event: a trial has reached `steps`. `value` is the newest value of the trial's metric."""

    number: int
    steps: int
    total_timesteps: int
    value: float | None


@dataclass(frozen=True)
class Evaluated:
    """Event: a trial was evaluated. A resumed trial sends all its evaluations again."""

    number: int
    step: int
    value: float


@dataclass(frozen=True)
class Ended:
    """Event: a trial has ended."""

    number: int
    result: Literal["completed", "stopped", "failed", "died"]
    """Result of the trial; "died" means that the process ended without sending a result."""
    message: str = ""


Event: TypeAlias = Progressed | Evaluated | Ended


def encode(event: Event) -> bytes:
    return json.dumps({"kind": type(event).__name__, **asdict(event)}).encode()


def decode(message: bytes) -> Event:
    fields: dict[str, Any] = json.loads(message)
    kinds: dict[str, type[Event]] = {"Progressed": Progressed, "Evaluated": Evaluated, "Ended": Ended}
    return kinds[fields.pop("kind")](**fields)
