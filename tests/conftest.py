"""Shared fixtures: small experiments, and a check that the installed native core is the one under test."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import distribution
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from rl4sys.algorithms.device import use_threads
from rl4sys.config import Settings, override
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress

ROOT = Path(__file__).parent.parent

# With two torch threads each, parallel test processes would slow one another down.
use_threads(1)


def undefined_names(core: Any) -> list[str]:
    """Return the classes, methods and functions that _core.pyi declares and the compiled core lacks."""
    declared = ast.parse((ROOT / "rl4sys/_core.pyi").read_text()).body
    names = [node.name for node in declared if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for node in declared:
        if isinstance(node, ast.ClassDef) and hasattr(core, node.name):
            names += [f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)]
    return [name for name in names if not _has(core, name)]


def _has(core: Any, name: str) -> bool:
    try:
        attrgetter(name)(core)
    except AttributeError:
        return False
    return True


def _check_native_core() -> None:
    """Stop the test run unless it uses the installed native core, built from the current sources.

    With a non-editable install the package at the repository root shadows the installed one. All tests would then use
    the numpy form, and the tests of the native core would be skipped. Set RL4SYS_NUMPY=1 to request this mode.
    """
    if os.environ.get("RL4SYS_NUMPY") == "1":
        return
    files = distribution("rl4sys").files or []
    installed = [Path(str(file.locate())).resolve() for file in files if file.match("rl4sys/_core*.so")]
    try:
        import rl4sys._core as core
    except ImportError:
        core = None
    loaded = core and Path(str(core.__file__)).resolve()
    remedy = "install the repository with `pip install -e .`, or set RL4SYS_NUMPY=1 to test the numpy form only"
    if not installed:
        raise pytest.UsageError(f"rl4sys is installed without its native core; {remedy}")
    if loaded not in installed:
        raise pytest.UsageError(
            f"the installed native core is {installed[0]}, but the tests loaded {loaded or 'none'}; {remedy}"
        )
    missing = undefined_names(core)
    if missing:
        raise pytest.UsageError(f"the native core {loaded} is stale: it lacks {', '.join(missing)}; {remedy}")


_check_native_core()


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


class SilentObserver:
    """Observer that stores notes and ignores progress."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def progress(self, progress: Progress) -> None:
        pass


def small_config(algorithm: str, *changes: str) -> ExperimentConfig:
    return parse_experiment(override(SMALL[algorithm], changes))


@pytest.fixture
def make_loop(tmp_path: Path) -> Callable[..., TrainingLoop]:
    """Return a factory of training loops for small experiments, each in its own run directory."""

    def make(algorithm: str, *changes: str, observer: Any = None, run: Run | None = None) -> TrainingLoop:
        run = run or Run.create(tmp_path, small_config(algorithm, *changes), datetime.now())
        return TrainingLoop(run, observer or SilentObserver())

    return make


@pytest.fixture(params=["ppo", "dqn"])
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)
