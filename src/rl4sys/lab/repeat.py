"""A run done again from its config and seed, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from rl4sys.experiment.config import ExperimentConfig, LoggingSettings
from rl4sys.experiment.run import Run
from rl4sys.lab.recorded import Life
from rl4sys.trainer import Progress, Trainer

Look = Callable[[Trainer, Run], bool]
"""Called before the first round and after each; true to stop."""


def repeat(folder: Path, config: ExperimentConfig, lives: Sequence[Life], until: int, look: Look) -> None:
    """Train as the run was trained, through all its lives, to the first round that ends at or after ``until``."""
    quiet = _quiet(config)
    run = Run.create_at(folder, _lasting(quiet, lives[0]), datetime.now())
    for number, life in enumerate(lives):
        run = Run(folder, _lasting(quiet, life)) if number else run
        goal = until if life.last_step is None else min(until, life.last_step)
        watcher = _Watcher(run, look, goal)
        trainer = watcher.trainer = Trainer(run, watcher)
        if number:
            trainer.resume()
        elif look(trainer, run) or until <= 0:
            return
        trainer.train()
        if watcher.stopped or trainer.progress().steps >= until:
            return


class _Watcher:
    """Looks at a trainer after every round, and stops it where it has come to its goal."""

    trainer: Trainer

    def __init__(self, run: Run, look: Look, goal: int) -> None:
        self._run, self._look, self._goal = run, look, goal
        self.stopped = False

    def note(self, message: str) -> None:
        """What the run said, it said when it was first done."""

    def progress(self, progress: Progress) -> None:
        self.stopped = self._look(self.trainer, self._run) or self.stopped
        if self.stopped or progress.steps >= self._goal:
            self.trainer.stop()


def _quiet(config: ExperimentConfig) -> ExperimentConfig:
    """The same in all that decides what is learnt and measured, and as little written as can be."""
    logging = LoggingSettings(terminal=False, tensorboard=False, frequency=config.logging.frequency)
    training = config.training.model_copy(update={"checkpoint_frequency": 10**15, "keep_checkpoints": 1})
    return config.model_copy(update={"logging": logging, "training": training})


def _lasting(config: ExperimentConfig, life: Life) -> ExperimentConfig:
    training = config.training.model_copy(update={"total_timesteps": life.total_timesteps})
    return config.model_copy(update={"training": training})
