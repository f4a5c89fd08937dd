"""Tests of experiments that command-line options define instead of a config file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rl4sys.cli.experiment_options import ExperimentOptions
from rl4sys.config import load, parse, shipped_names
from rl4sys.environments.base import step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment

from .conftest import Rl4sys

REPLACED = "HalfCheetah-v3 is not available in this version of Gymnasium; using HalfCheetah-v5"


@pytest.mark.parametrize(
    ("task", "taken", "noted"),
    [
        (
            "v3",
            "HalfCheetah-v5",
            [REPLACED],
        ),
        ("v4", "HalfCheetah-v4", []),
        ("v5", "HalfCheetah-v5", []),
        (None, "HalfCheetah-v5", []),
    ],
)
def test_unavailable_environment_version_is_replaced(task: str | None, taken: str, noted: list[str]) -> None:
    notes: list[str] = []
    settings = ExperimentOptions("SAC", "gym", "HalfCheetah", task).to_settings(notes.append)
    assert settings["environment"] == {"name": taken, "family": "gym"}
    assert settings["algorithm"]["name"] == "sac"
    assert settings["network"]["actor"]["hidden_dims"] == [256, 256], "the shipped settings of the algorithm"
    assert settings["training"]["num_eval_episodes"] == 5, "the shipped settings of the environment"
    assert notes == noted


def test_universe_and_algorithm_variant_can_be_chosen_by_options() -> None:
    settings = ExperimentOptions("QR-DQN", "dm_control", "walker", "walk").to_settings(print)
    assert settings["environment"] == {"family": "dm_control", "name": "walker-walk"}
    assert settings["algorithm"]["name"] == "qr_dqn"
    assert settings["network"]["critic"]["hidden_dims"] == [256, 256]


@pytest.mark.parametrize(
    ("universe", "domain", "task", "steps"),
    [
        ("gym", "Swimmer", "v3", 300_000),
        ("gym", "Hopper", "v3", 1_000_000),
        ("gym", "HalfCheetah", "v3", 3_000_000),
        ("gym", "Walker2d", "v3", 3_000_000),
        ("gym", "Ant", "v3", 3_000_000),
        ("gym", "Humanoid", "v3", 10_000_000),
        ("gym", "Pusher", "v4", 2_000_000),
        ("gym", "Reacher", "v2", 200_000),
        ("gym", "Pendulum", "v1", 10_000),
        ("gym", "HandReach", "v0", 10_000_000),
        ("gym", "HandManipulateEgg", "v0", 10_000_000),
        ("gym", "MountainCarContinuous", "v0", 200_000),
        ("dm_control", "ball_in_cup", "catch", 20_000_000),
        ("dm_control", "cheetah", "run", 20_000_000),
        ("dm_control", "finger", "spin", 20_000_000),
        ("dm_control", "pendulum", "swingup", 200_000),
        ("dm_control", "humanoid_CMU", "stand", 200_000),
    ],
)
def test_training_length_depends_on_universe_and_domain(universe: str, domain: str, task: str, steps: int) -> None:
    settings = ExperimentOptions("SAC", universe, domain, task).to_settings(lambda note: None)
    assert settings["training"]["total_timesteps"] == steps


@pytest.mark.parametrize(
    ("domain", "scale"),
    [("Swimmer", 30), ("Hopper", 30), ("HalfCheetah", 30), ("Walker2d", 10), ("Ant", 300), ("Humanoid", 100)],
)
def test_reward_scale_of_soft_q_learning_depends_on_the_domain(domain: str, scale: int) -> None:
    sql, sac = (ExperimentOptions(name, "gym", domain, None).to_settings(print)["algorithm"] for name in ("SQL", "SAC"))
    assert (sql["reward_scale"], sql["particles"]) == (scale, 32)
    assert "reward_scale" not in sac
    walker = ExperimentOptions("SQL", "dm_control", "humanoid", "walk").to_settings(print)
    assert "reward_scale" not in walker["algorithm"], "the scales belong to the domains of gym"


def shipped_environments() -> list[str]:
    return [name for name in shipped_names("environments") if "environment" in load(f"environments/{name}")]


@pytest.mark.parametrize("name", shipped_environments())
def test_shipped_environment_can_be_created(name: str) -> None:
    settings = load(f"environments/{name}")
    if "plugins" in settings:
        pytest.importorskip(settings["plugins"][0])
    config = parse(EnvironmentConfig, settings["environment"], "environment")
    environment = make_environment(config)
    assert 0 < (config.max_episode_steps or step_limit(environment) or 0) <= 1000
    environment.close()


def test_experiment_without_config_trains(rl4sys: Rl4sys, tmp_path: Path) -> None:
    options = ["--algorithm", "PPO", "--universe", "gym", "--domain", "CartPole", "--task", "v1"]
    more = ["--exp-name", "my-experiment", "--checkpoint-frequency", "1000", "--cpus", "1", "--gpus", "0"]
    outcome = rl4sys("train", *options, *more, "--total-timesteps", "64", "buffer.size=64", "logging.terminal=false")
    assert outcome.exit_code == 0, outcome.err
    (run,) = (path for path in (tmp_path / "experiments").iterdir() if path.is_dir())
    assert run.name.startswith("my-experiment_")
    stored = yaml.safe_load((run / "configs/config.yaml").read_text())
    assert stored["training"]["checkpoint_frequency"] == 1000
    assert stored["experiment"]["device"] == "cpu"
    assert stored["environment"]["name"] == "CartPole-v1"


MISTAKES = {
    "config and options": (
        ["ppo_cartpole", "--algorithm", "SAC"],
        "--algorithm cannot be combined with the config 'ppo_cartpole'; change settings of the config instead",
    ),
    "no domain": (["--algorithm", "SAC"], "--domain, such as HalfCheetah, is missing"),
    "no algorithm": (["--domain", "CartPole"], "--algorithm, such as SAC, is missing"),
    "unknown algorithm": (
        ["--algorithm", "PPP", "--domain", "CartPole"],
        "no algorithm is named 'ppp'; did you mean ppo?",
    ),
    "two GPUs": (
        ["ppo_cartpole", "--gpus", "2"],
        "; use --gpus 1, or --gpus 0 for the CPU",
    ),
    "no arguments": ([], "no config given"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_invalid_options_are_rejected(rl4sys: Rl4sys, arguments: list[str], message: str) -> None:
    outcome = rl4sys("train", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
