"""Progress of a training run, and the interface for watching it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from rl4sys.environments.evaluation import Evaluation


@dataclass(frozen=True)
class Progress:
    """Progress at the end of a round; ``recent_return`` is the mean return of the last 100 training episodes."""

    steps: int
    total_timesteps: int
    version: int
    steps_per_second: float
    recent_return: float | None
    evaluation: Evaluation | None
    evaluated_at: int | None
    saved_at: int | None
    """Step of the newest checkpoint; None before the first checkpoint."""
    finished: bool
    """True once all steps are taken and the last evaluation, log row and checkpoint are done."""


class Observer(Protocol):
    """Receiver of user messages and progress reports, such as the terminal."""

    def note(self, message: str) -> None:
        """Show a message to the user. May be called from any thread."""

    def progress(self, progress: Progress) -> None:
        """Handle the progress report at the end of a round of collecting and learning."""


class LoggingObserver:
    """Observer that writes notes to Python's log and ignores progress."""

    def __init__(self) -> None:
        self._log = logging.getLogger("rl4sys.training")

    def note(self, message: str) -> None:
        self._log.warning("%s", message)

    def progress(self, progress: Progress) -> None:
        """Ignore progress, because the metrics and the status file of the run contain it."""
