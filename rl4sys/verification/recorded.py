"""Recorded outputs of a run that `verify` compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rl4sys.errors import RunError
from rl4sys.runs.run import Run

STEP = "step"
_PREFIX = "step_"


@dataclass(frozen=True)
class Attempt:
    """Part of a run from its start or a resume to the next resume. Schedules depend on its `total_timesteps`."""

    first_step: int
    total_timesteps: int
    last_step: int | None = None
    """First step of the next attempt; None for the last attempt."""


@dataclass(frozen=True)
class RecordedRun:
    """Records of a run, read once. Checkpoints are read on demand."""

    run: Run
    provenance: Mapping[str, Any]
    completed: bool
    rows: list[dict[str, Any]]
    digests: list[dict[str, Any]]
    checkpoints: Mapping[int, str]
    """Checkpoint names by step."""

    @classmethod
    def read(cls, run: Run) -> RecordedRun:
        """Read the records of a run. Raises `RunError` if there are no records or a file is corrupt."""
        names = [name for name in run.checkpoints.names() if name.startswith(_PREFIX)]
        recorded = cls(
            run,
            run.provenance(),
            run.status().get("status") == "completed",
            _rows(run.metrics, run.directory.metric_rows),
            _rows(run.digests, run.directory.digest_rows),
            {int(name.removeprefix(_PREFIX)): name for name in names},
        )
        if recorded.last_step is None:
            raise RunError(f"{run.path} has neither metrics nor checkpoints, so there is nothing to verify")
        return recorded

    @cached_property
    def last_step(self) -> int | None:
        """Last recorded step; None if the run has no records."""
        steps = [*self.checkpoints, *(row[STEP] for row in (*self.rows[-1:], *self.digests[-1:]))]
        return max(steps, default=None)

    def attempts(self) -> list[Attempt]:
        """Return all attempts that are not superseded. The last one has the current config's `total_timesteps`."""
        initial_total = self.provenance.get("config", {}).get("training", {}).get("total_timesteps")
        attempts = [Attempt(0, initial_total)] if initial_total is not None else []
        for resumed in self.provenance.get("resumed", []):
            if "total_timesteps" in resumed:
                attempts = _without_superseded(attempts, resumed[STEP])
                attempts.append(Attempt(resumed[STEP], resumed["total_timesteps"]))
        total = self.run.config.training.total_timesteps
        attempts = [*attempts[:-1], replace(attempts[-1], total_timesteps=total)] if attempts else [Attempt(0, total)]
        return _merged(attempts)

    @property
    def has_unrecorded_resume(self) -> bool:
        """True if an earlier release resumed the run without recording its total timesteps."""
        return any("total_timesteps" not in resumed for resumed in self.provenance.get("resumed", []))


def _without_superseded(attempts: list[Attempt], step: int) -> list[Attempt]:
    """Remove attempts that started at or after `step`, because a resume at `step` repeats them."""
    kept = [attempt for attempt in attempts if attempt.first_step < step]
    return kept or attempts[:1]


def _merged(attempts: list[Attempt]) -> list[Attempt]:
    """Merge consecutive attempts with the same total timesteps; a resume between them has no effect on results."""
    merged = attempts[:1]
    for attempt in attempts[1:]:
        if attempt.total_timesteps != merged[-1].total_timesteps:
            merged[-1] = replace(merged[-1], last_step=attempt.first_step)
            merged.append(attempt)
    return merged


def _rows(path: Path, read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    try:
        return [{**row, STEP: int(row[STEP])} for row in read()]
    except (ValueError, KeyError, TypeError) as problem:
        raise RunError(f"{path} is damaged: {problem!r}; the run cannot be verified") from problem
