"""Small experiments to test with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.algorithms.device import use_threads
from rl4sys.config import Settings, override
from rl4sys.experiment.config import ExperimentConfig, parse_experiment
from rl4sys.experiment.run import Run
from rl4sys.trainer import Progress, Trainer

# Several test processes with two threads of torch each wait for one another most of the time.
use_threads(1)


def _short(steps: int) -> Settings:
    return {
        "training": {
            "total_timesteps": steps,
            "eval_frequency": 300,
            "num_eval_episodes": 2,
            "checkpoint_frequency": 200,
        },
        "logging": {"terminal": False, "tensorboard": False, "frequency": 100},
    }


SMALL: dict[str, Settings] = {
    "ppo": {
        "experiment": {"name": "small_ppo", "seed": 3, "device": "cpu"},
        "algorithm": {"name": "ppo", "lr": {"start": 1e-3, "end": 0.0}, "epochs": 2, "minibatch_size": 32},
        "environment": {"name": "CartPole-v1", "num_envs": 3, "normalize_obs": True, "normalize_reward": True},
        "network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}},
        "buffer": {"size": 96},
        **_short(960),
    },
    "dqn": {
        "experiment": {"name": "small_dqn", "seed": 3, "device": "cpu"},
        "algorithm": {
            "name": "dqn",
            "batch_size": 16,
            "learning_starts": 64,
            "train_frequency": 16,
            "gradient_steps": 4,
            "target_update_interval": 50,
            "n_step": 3,
            "dueling": True,
        },
        "environment": {"name": "CartPole-v1", "num_envs": 2, "normalize_obs": True, "normalize_reward": True},
        "network": {"critic": {"hidden_dims": [8], "activation": "relu"}},
        "buffer": {"size": 300},
        **_short(800),
    },
    "sac": {
        "experiment": {"name": "small_sac", "seed": 3, "device": "cpu"},
        "algorithm": {
            "name": "sac",
            "batch_size": 16,
            "learning_starts": 64,
            "train_frequency": 16,
            "gradient_steps": 4,
        },
        "environment": {"name": "CartPole-v1", "num_envs": 2, "normalize_obs": True, "normalize_reward": True},
        "network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8], "activation": "relu"}},
        "buffer": {"size": 300},
        **_short(800),
    },
}


class Silent:
    """An observer that remembers notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def progress(self, progress: Progress) -> None:
        pass


def small_config(algorithm: str, *changes: str) -> ExperimentConfig:
    return parse_experiment(override(SMALL[algorithm], changes))


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """A trainer for a small experiment, in a run directory of its own."""

    def make(algorithm: str, *changes: str, observer: Any = None, run: Run | None = None) -> Trainer:
        run = run or Run.create(tmp_path, small_config(algorithm, *changes), datetime.now())
        return Trainer(run, observer or Silent())

    return make


@pytest.fixture(params=["ppo", "dqn"])
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)
