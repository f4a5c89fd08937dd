"""What a run wrote down, as that which a repetition is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rl4sys.errors import RunError
from rl4sys.experiment.metrics import read_metrics
from rl4sys.experiment.run import Run

STEP = "step"
_PREFIX = "step_"


@dataclass(frozen=True)
class Life:
    """From one start or resume of a run to the next: schedules end where it meant to."""

    first_step: int
    total_timesteps: int
    last_step: int | None = None
    """Where the next one took over; None for the last."""


@dataclass(frozen=True)
class Recorded:
    """The records of a run, read once; checkpoints are read when they are asked for."""

    run: Run
    provenance: Mapping[str, Any]
    completed: bool
    rows: list[dict[str, Any]]
    digests: list[dict[str, Any]]
    checkpoints: Mapping[int, str]
    """Their names by step."""

    @classmethod
    def of(cls, run: Run) -> Recorded:
        names = [name for name in run.checkpoints.names() if name.startswith(_PREFIX)]
        recorded = cls(
            run,
            run.provenance(),
            run.status().get("status") == "completed",
            _rows(run.metrics),
            _rows(run.digests),
            {int(name.removeprefix(_PREFIX)): name for name in names},
        )
        if recorded.last_step is None:
            raise RunError(f"{run.path} has neither metrics nor checkpoints, so there is nothing to verify")
        return recorded

    @cached_property
    def last_step(self) -> int | None:
        """How far the run got, as far as it wrote that down."""
        steps = [*self.checkpoints, *(row[STEP] for row in (*self.rows[-1:], *self.digests[-1:]))]
        return max(steps, default=None)

    def lives(self) -> list[Life]:
        """In order, without those that came to nothing; the last is as the config now says."""
        began = self.provenance.get("config", {}).get("training", {}).get("total_timesteps")
        lives = [Life(0, began)] if began is not None else []
        for resumed in self.provenance.get("resumed", []):
            if "total_timesteps" in resumed:
                lives = _without_superseded(lives, resumed[STEP])
                lives.append(Life(resumed[STEP], resumed["total_timesteps"]))
        total = self.run.config.training.total_timesteps
        lives = [*lives[:-1], replace(lives[-1], total_timesteps=total)] if lives else [Life(0, total)]
        return _joined(lives)

    @property
    def resumed_unawares(self) -> bool:
        """Whether it was resumed by a release that did not note with how many steps to go."""
        return any("total_timesteps" not in resumed for resumed in self.provenance.get("resumed", []))


def _without_superseded(lives: list[Life], step: int) -> list[Life]:
    """A life that went back to before another began undid all of that."""
    kept = [life for life in lives if life.first_step < step]
    return kept or lives[:1]


def _joined(lives: list[Life]) -> list[Life]:
    """A resume with as many steps to go as before changes nothing."""
    joined = lives[:1]
    for life in lives[1:]:
        if life.total_timesteps != joined[-1].total_timesteps:
            joined[-1] = replace(joined[-1], last_step=life.first_step)
            joined.append(life)
    return joined


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        # The step is what a row is found by.
        return [{**row, STEP: int(row[STEP])} for row in read_metrics(path)]
    except (ValueError, KeyError, TypeError) as problem:
        raise RunError(f"{path} is damaged: {problem!r}; what the run recorded cannot be compared") from problem
