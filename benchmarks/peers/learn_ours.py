"""Train an experiment of RL4Sys with default logging and checkpoints, and print its learning curve."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from clock import print_result, read_workload
from evaluation import Act, Evaluation
from numpy.typing import NDArray

from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress

NEVER = 10**9


def experiment_of(work: dict[str, Any]) -> ExperimentConfig:
    """Return the experiment config of a workload. The training loop evaluates only one episode, at the end."""
    settings = work["settings"]
    training = {"total_timesteps": work["total"], "eval_frequency": NEVER, "num_eval_episodes": 1}
    return parse_experiment(
        {
            **settings,
            "experiment": {**settings.get("experiment", {}), "seed": work["seed"]},
            "training": {**settings.get("training", {}), **training},
        }
    )


class EvaluatedTraining:
    """Observer that evaluates the policy after rounds and stops training once the goal is reached."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self.loop: TrainingLoop | None = None

    def note(self, message: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        self._evaluation.evaluate_if_due(progress.steps, self._policy)
        if self._evaluation.passed and self.loop is not None:
            self.loop.stop()

    def _policy(self) -> Act:
        snapshot = self.loop.snapshot_or_none() if self.loop is not None else None
        assert snapshot is not None
        policy, draws = SnapshotPolicy(snapshot).greedy(), Draws(key=1)
        name = next(iter(snapshot.spec.observation))

        def act(rows: NDArray[Any]) -> NDArray[Any]:
            return policy.act({name: rows.astype(np.float32)}, {}, draws).action

        return act


def main() -> None:
    work = read_workload()
    evaluation = Evaluation(work)
    observer = EvaluatedTraining(evaluation)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder), experiment_of(work), datetime.now())
        observer.loop = TrainingLoop(run, observer)
        evaluation.start()
        observer.loop.train()
    print_result({"curve": evaluation.curve, "returns": evaluation.returns}, "rl4sys", "torch", "gymnasium")


if __name__ == "__main__":
    main()
