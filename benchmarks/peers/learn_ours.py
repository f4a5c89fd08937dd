"""Trains an experiment of ours, with logging and checkpoints as by default, and tells how well it did when."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from clock import given_work, hand_over
from judging import Act, Examination
from numpy.typing import NDArray

from rl4sys.experiment.config import ExperimentConfig, parse_experiment
from rl4sys.experiment.run import Run
from rl4sys.policy.draws import Draws
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.trainer import Progress, Trainer

NEVER = 10**9


def experiment_of(work: dict[str, Any]) -> ExperimentConfig:
    """The settings given, for the seed given. The Trainer's own evaluation, of one episode, comes at the end alone."""
    settings = work["settings"]
    training = {"total_timesteps": work["total"], "eval_frequency": NEVER, "num_eval_episodes": 1}
    return parse_experiment(
        {
            **settings,
            "experiment": {**settings.get("experiment", {}), "seed": work["seed"]},
            "training": {**settings.get("training", {}), **training},
        }
    )


class Examined:
    """Has the policy judged after every round that makes it due, and stops the training that has passed."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination
        self.trainer: Trainer | None = None

    def note(self, message: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        self._examination.see(progress.steps, self._policy)
        if self._examination.passed and self.trainer is not None:
            self.trainer.stop()

    def _policy(self) -> Act:
        snapshot = self.trainer.portable() if self.trainer is not None else None
        assert snapshot is not None
        policy, draws = SnapshotPolicy(snapshot).greedy(), Draws(key=1)
        name = next(iter(snapshot.spec.observation))

        def act(rows: NDArray[Any]) -> NDArray[Any]:
            return policy.act({name: rows.astype(np.float32)}, {}, draws).action

        return act


def main() -> None:
    work = given_work()
    examination = Examination(work)
    examined = Examined(examination)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder), experiment_of(work), datetime.now())
        examined.trainer = Trainer(run, examined)
        examination.begin()
        examined.trainer.train()
    hand_over({"curve": examination.curve, "returns": examination.returns}, "rl4sys", "torch", "gymnasium")


if __name__ == "__main__":
    main()
