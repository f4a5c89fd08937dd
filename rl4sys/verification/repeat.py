"""Repetition of a run from its config and seed in a separate directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from rl4sys.runs.config import ExperimentConfig, LoggingConfig
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress
from rl4sys.verification.recorded import Attempt

RoundCallback = Callable[[TrainingLoop, Run], bool]
"""Function called before the first round and after each round; returns True to stop the repetition."""


def repeat(
    directory: Path, config: ExperimentConfig, attempts: Sequence[Attempt], until: int, on_round: RoundCallback
) -> None:
    """Repeat all attempts of a run, up to the first round that ends at or after step `until`."""
    quiet = _without_logging(config)
    run = Run.create_at(directory, _with_length(quiet, attempts[0]), datetime.now())
    for number, attempt in enumerate(attempts):
        run = Run(directory, _with_length(quiet, attempt)) if number else run
        goal = until if attempt.last_step is None else min(until, attempt.last_step)
        observer = _RoundObserver(run, on_round, goal)
        loop = observer.loop = TrainingLoop(run, observer)
        if number:
            loop.resume()
        elif on_round(loop, run) or until <= 0:
            return
        loop.train()
        if observer.stopped or loop.progress().steps >= until:
            return


class _RoundObserver:
    """Calls `on_round` after every round and stops training at the step `goal`."""

    loop: TrainingLoop

    def __init__(self, run: Run, on_round: RoundCallback, goal: int) -> None:
        self._run, self._on_round, self._goal = run, on_round, goal
        self.stopped = False

    def note(self, message: str) -> None:
        """Ignore notes, because users saw them during the original run."""

    def progress(self, progress: Progress) -> None:
        self.stopped = self._on_round(self.loop, self._run) or self.stopped
        if self.stopped or progress.steps >= self._goal:
            self.loop.stop()


def _without_logging(config: ExperimentConfig) -> ExperimentConfig:
    """Return the config without logs and periodic checkpoints; learning and metrics stay the same."""
    logging = LoggingConfig(terminal=False, tensorboard=False, frequency=config.logging.frequency)
    training = config.training.model_copy(update={"checkpoint_frequency": 10**15, "keep_checkpoints": 1})
    return config.model_copy(update={"logging": logging, "training": training})


def _with_length(config: ExperimentConfig, attempt: Attempt) -> ExperimentConfig:
    training = config.training.model_copy(update={"total_timesteps": attempt.total_timesteps})
    return config.model_copy(update={"training": training})
