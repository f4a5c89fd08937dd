"""Measure the training speed of RL4Sys with default logging and checkpoints, as in `rl4sys train`."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from clock import Clock, read_workload

from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress

NEVER = 10**9
SHARED = ("batch_size", "learning_starts", "train_frequency", "gradient_steps")
"""Options with the same names in workloads and in RL4Sys."""


def learning(work: dict[str, Any]) -> dict[str, Any]:
    if work["algorithm"] == "ppo":
        algorithm = {"name": "ppo", "epochs": work["epochs"], "minibatch_size": work["minibatch"]}
        return {"algorithm": algorithm, "buffer": {"size": work["num_envs"] * work["length"]}}
    algorithm = {"name": work["algorithm"], **{key: work[key] for key in SHARED}}
    if work["algorithm"] == "dqn":
        # As in the other libraries: no double Q-learning, and hard updates of the target network.
        algorithm |= {"double": False, "tau": 1.0, "target_update_interval": work["target_update_interval"]}
    return {"algorithm": algorithm, "buffer": {"type": "uniform", "size": work["buffer_size"]}}


def settings_of(work: dict[str, Any]) -> dict[str, Any]:
    network = {"hidden_dims": work["hidden"], "activation": "tanh" if work["algorithm"] == "ppo" else "relu"}
    roles = ("critic",) if work["algorithm"] == "dqn" else ("actor", "critic")
    # One round more than the other libraries: the last round includes an evaluation and is not timed.
    one_round = work["num_envs"] * work["length"] if work["algorithm"] == "ppo" else work["train_frequency"]
    training = {"total_timesteps": work["total"] + one_round, "eval_frequency": NEVER, "num_eval_episodes": 1}
    return {
        "experiment": {"name": "speed", "seed": work["seed"]},
        "environment": {"name": work["environment"], "num_envs": work["num_envs"], **work.get("environment_more", {})},
        "network": dict.fromkeys(roles, network),
        "training": {**training, **work.get("training_more", {})},
        **learning(work),
    }


class Timed:
    """Observer that records every round on the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def note(self, message: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        if not progress.finished:
            self._clock.record(progress.steps)


def main() -> None:
    work = read_workload()
    clock = Clock(work["warm"])
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder), parse_experiment(settings_of(work)), datetime.now())
        TrainingLoop(run, Timed(clock)).train()
    clock.report("rl4sys", "torch", "gymnasium")


if __name__ == "__main__":
    main()
