"""Environments that are passed to `rl4sys.train` as Python objects, and their settings in the config of the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rl4sys
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.environments.provided import environment_settings
from rl4sys.errors import ConfigError
from tests.api.thermostat import NeedsTarget, PlainThermostat, ScaledReward, Thermostat, make_thermostat

MODULE = "tests.api.thermostat"


def train(environment: Any, root: Path) -> Any:
    return rl4sys.train(
        algorithm="ppo", environment=environment, total_timesteps=256, root=root, progress=False, buffer={"size": 128}
    )


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ("CartPole-v1", {"name": "CartPole-v1"}),
        (Thermostat, {"name": f"{MODULE}:Thermostat"}),
        (make_thermostat, {"name": f"{MODULE}:make_thermostat"}),
        (PlainThermostat(), {"name": f"{MODULE}:PlainThermostat"}),
        ({"name": Thermostat, "num_envs": 2}, {"name": f"{MODULE}:Thermostat", "num_envs": 2}),
        (gymnasium.make("CartPole-v1"), {"name": "CartPole-v1"}),
        (
            gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=20),
            {
                "name": "FrozenLake-v1",
                "options": {"map_name": "4x4", "is_slippery": False},
                "max_episode_steps": 20,
            },
        ),
    ],
    ids=["id", "class", "function", "object", "block", "made by Gymnasium", "with options and limit"],
)
def test_environment_is_converted_to_settings(environment: Any, settings: dict[str, Any]) -> None:
    assert environment_settings(environment) == settings
    recorded = make_environment(EnvironmentConfig.model_validate(settings))
    assert recorded.reset(seed=3)[0] is not None


def test_settings_contain_the_gymnasium_wrappers_of_an_environment() -> None:
    clipped = gymnasium.wrappers.ClipReward(gymnasium.make("Pendulum-v1"), -0.001, 0.0)
    settings = environment_settings(clipped)
    assert settings["wrappers"][0]["name"].endswith(":ClipReward")
    made = make_environment(EnvironmentConfig.model_validate(settings))
    made.reset(seed=1)
    assert made.step(made.action_space.sample())[1] == pytest.approx(-0.001)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (NeedsTarget(3.0), r"give a function that creates it: environment=lambda: NeedsTarget\(...\)"),
        (ScaledReward(Thermostat()), r"give a function that creates it: environment=lambda: ScaledReward\(MyEnv\(\)\)"),
        (7, r"environment is 7; expected a name such as 'CartPole-v1'"),
        (gymnasium.make_vec("CartPole-v1", 2), r"set num_envs for several copies"),
    ],
    ids=["with an argument", "with a wrapper", "number", "vectorized"],
)
def test_environment_that_cannot_be_recreated_is_rejected(environment: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(environment, tmp_path)
    assert list(tmp_path.iterdir()) == []


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "rl4sys", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_commands_import_the_environment_of_a_run(tmp_path: Path) -> None:
    run = train(Thermostat, tmp_path)
    evaluated = command("evaluate", str(run.path), "--episodes", "3", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert command("verify", str(run.path)).returncode == 0
    resumed = command("train", "--resume", str(run.path), "training.total_timesteps=512")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize("make", [lambda: Thermostat(22.0), partial(Thermostat, 22.0)], ids=["lambda", "partial"])
def test_environment_that_cannot_be_imported_must_be_passed_again(
    make: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(make, tmp_path)
    assert "cannot be imported, so a command" in caplog.text
    assert run.evaluate(3).mean_return < 0, "this process still has the environment"
    assert run.verify().identical
    failed = command("evaluate", str(run.path))
    assert failed.returncode == 2
    assert "is a Python object that cannot be imported" in failed.stderr
    script = (
        "import rl4sys\n"
        "from tests.api.thermostat import Thermostat\n"
        f"run = rl4sys.load_run({str(run.path)!r})\n"
        "make = lambda: Thermostat(22.0)\n"
        "print(run.resume(512, environment=make, progress=False).evaluate(3, environment=make).mean_return)\n"
    )
    again = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert rl4sys.load_run(run.path).steps == 512


def test_replacing_an_importable_environment_is_rejected(tmp_path: Path) -> None:
    run = train(Thermostat, tmp_path)
    with pytest.raises(ConfigError, match=r"already has environment\.name .*; remove environment"):
        run.resume(512, environment=make_thermostat)
