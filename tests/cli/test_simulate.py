"""Tests of the command ``rl4sys simulate``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import Rl4sys


def test_simulate_prints_rollouts_and_summary(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("simulate", finished_run, "--num-rollouts", "2", "--max-path-length", "5")
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out.startswith(f"{finished_run.name}, checkpoint step_000000000288\n")
    assert re.search(r"│ 1 +│ 5.00 +│ 5 +│\n│ 2 +│ 5.00 +│ 5 +│", outcome.out)
    assert "mean return 5.00 ± 0.00, mean length 5.0 steps\n" in outcome.out


def test_simulate_and_evaluate_run_the_same_episodes(rl4sys: Rl4sys, finished_run: Path) -> None:
    evaluated = json.loads(rl4sys("evaluate", finished_run, "--episodes", "3", "--json").out)
    seen = json.loads(rl4sys("simulate", finished_run, "--num-rollouts", "3", "--json").out)
    assert seen["returns"] == evaluated["returns"]
    other = json.loads(rl4sys("simulate", finished_run, "--num-rollouts", "3", "--seed", "77", "--json").out)
    assert other["returns"] != evaluated["returns"]


def test_run_checkpoint_and_policy_file_give_the_same_policy(
    rl4sys: Rl4sys, finished_run: Path, tmp_path: Path
) -> None:
    checkpoint = finished_run / "checkpoints" / "best"
    lone = shutil.copy(checkpoint / "policy.safetensors", tmp_path / "lone.safetensors")
    ways = [
        [finished_run, "--checkpoint", "best"],
        [finished_run.name, "--checkpoint", "best"],
        [checkpoint],
        [checkpoint / "policy.safetensors"],
        [lone, "--environment", "CartPole-v1", "--seed", "3"],
    ]
    seen = [json.loads(rl4sys("simulate", *way, "--json").out) for way in ways]
    assert len({str(result["returns"]) for result in seen}) == 1
    assert [result["checkpoint"] for result in seen] == [checkpoint.readlink().name] * 4 + [None]


def test_video_is_recorded_without_a_display(rl4sys: Rl4sys, finished_run: Path, tmp_path: Path) -> None:
    outcome = rl4sys(
        "simulate", finished_run, "--max-path-length", "3", "--video", "film.mp4", "options.sutton_barto_reward=true"
    )
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out.endswith("video: film.mp4\n")
    assert "│ 0.00" in outcome.out, "the environment option is applied"
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"


MISTAKES = {
    "no display": (["--render", "human"], "a window needs a display, but this machine has none"),
    "no display, with --render-kwargs": (["--render-kwargs", '{"mode": "human"}'], "a window needs a display"),
    "invalid JSON": (["--render-kwargs", "human"], "--render-kwargs is 'human', which is not valid JSON"),
    "unknown argument": (["--render-kwargs", '{"width": 9}'], """--render-kwargs is '{"width": 9}'; expected"""),
    "unknown video format": (["--video", "a.avi"], "expected a file name that ends in .mp4 or .gif"),
    "two views": (["--video", "a.mp4", "--render", "human"], "--render human and --video cannot be combined"),
    "unknown checkpoint": (["--checkpoint", "worst"], "no checkpoint 'worst' in"),
    "another environment": (["--environment", "Acrobot-v1"], "but the policy was trained with observations"),
}


def test_invalid_arguments_are_rejected(rl4sys: Rl4sys, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for mistake, (arguments, message) in MISTAKES.items():
        outcome = rl4sys("simulate", finished_run, *arguments)
        assert outcome.exit_code == 2, mistake
        assert message in outcome.err, mistake


def test_conflicting_arguments_are_rejected(rl4sys: Rl4sys, finished_run: Path, tmp_path: Path) -> None:
    checkpoint = finished_run / "checkpoints" / "latest"
    twice = rl4sys("simulate", checkpoint, "--checkpoint", "best")
    assert "--checkpoint best applies to runs, but" in twice.err
    lone = shutil.copy(checkpoint / "policy.safetensors", tmp_path / "lone.safetensors")
    assert "does not contain the environment name; add --environment" in rl4sys("simulate", lone).err


def test_simulate_rejects_file_without_policy(rl4sys: Rl4sys, small_file: Path) -> None:
    outcome = rl4sys("simulate", small_file, "--environment", "CartPole-v1")
    assert outcome.exit_code == 2
    assert "small.yaml' is not a policy file; expected a run, a checkpoint directory or a policy.safetensors file" in (
        outcome.err
    )
