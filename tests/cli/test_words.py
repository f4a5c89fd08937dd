"""Experiments in words on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rl4sys.cli.words import Words

from .conftest import Rl4sys


@pytest.mark.parametrize(
    ("task", "taken", "noted"),
    [
        ("v3", "HalfCheetah-v5", ["HalfCheetah-v3 is not to be had from this Gymnasium; HalfCheetah-v5 is taken"]),
        ("v4", "HalfCheetah-v4", []),
        ("v5", "HalfCheetah-v5", []),
        (None, "HalfCheetah-v5", []),
    ],
)
def test_a_version_that_is_gone_becomes_the_newest_with_a_note(task: str | None, taken: str, noted: list[str]) -> None:
    notes: list[str] = []
    settings = Words("SAC", "gym", "HalfCheetah", task).settings(notes.append)
    assert settings["environment"] == {"name": taken, "wrapper": "gym"}
    assert settings["algorithm"]["name"] == "sac"
    assert settings["network"]["actor"]["hidden_dims"] == [256, 256], "the shipped settings of the algorithm"
    assert settings["training"]["num_eval_episodes"] == 5, "the shipped settings of the environment"
    assert notes == noted


def test_other_universes_and_variants_are_found() -> None:
    settings = Words("QR-DQN", "dm_control", "walker", "walk").settings(print)
    assert settings["environment"] == {"wrapper": "dm_control", "name": "walker-walk"}
    assert settings["algorithm"]["name"] == "qr_dqn"
    assert settings["network"]["critic"]["hidden_dims"] == [256, 256]


def test_words_train(rl4sys: Rl4sys, tmp_path: Path) -> None:
    words = ["--algorithm", "PPO", "--universe", "gym", "--domain", "CartPole", "--task", "v1"]
    more = ["--exp-name", "my-experiment", "--checkpoint-frequency", "1000", "--cpus", "1", "--gpus", "0"]
    outcome = rl4sys("train", *words, *more, "--total-timesteps", "64", "buffer.size=64", "logging.terminal=false")
    assert outcome.exit_code == 0, outcome.err
    (run,) = (path for path in (tmp_path / "experiments").iterdir() if path.is_dir())
    assert run.name.startswith("my-experiment_")
    stored = yaml.safe_load((run / "configs/config.yaml").read_text())
    assert stored["training"]["checkpoint_frequency"] == 1000
    assert stored["experiment"]["device"] == "cpu"
    assert stored["environment"]["name"] == "CartPole-v1"


MISTAKES = {
    "a config and words": (
        ["ppo_cartpole", "--algorithm", "SAC"],
        "--algorithm describe an experiment without a config",
    ),
    "no domain": (["--algorithm", "SAC"], "--domain, such as HalfCheetah, is missing"),
    "no algorithm": (["--domain", "CartPole"], "--algorithm, such as SAC, is missing"),
    "no such algorithm": (
        ["--algorithm", "PPP", "--domain", "CartPole"],
        "no algorithm is named 'ppp'; did you mean ppo?",
    ),
    "nothing": ([], "no config given"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_told(rl4sys: Rl4sys, arguments: list[str], message: str) -> None:
    outcome = rl4sys("train", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
