"""``rl4sys simulate`` as a user calls it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import Rl4sys


def test_simulate_prints_every_rollout_and_a_summary(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("simulate", finished_run, "--num-rollouts", "2", "--max-path-length", "5")
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out.startswith(f"{finished_run.name}, checkpoint step_000000000288\n")
    assert re.search(r"│ 1 +│ 5.00 +│ 5 +│\n│ 2 +│ 5.00 +│ 5 +│", outcome.out)
    assert "mean return 5.00 ± 0.00, mean length 5.0 steps\n" in outcome.out


def test_simulate_shows_the_episodes_that_evaluate_judges(rl4sys: Rl4sys, finished_run: Path) -> None:
    judged = json.loads(rl4sys("evaluate", finished_run, "--episodes", "3", "--json").out)
    seen = json.loads(rl4sys("simulate", finished_run, "--num-rollouts", "3", "--json").out)
    assert seen["returns"] == judged["returns"]
    other = json.loads(rl4sys("simulate", finished_run, "--num-rollouts", "3", "--seed", "77", "--json").out)
    assert other["returns"] != judged["returns"]


def test_a_run_a_checkpoint_and_a_policy_are_the_same_policy(
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


def test_a_video_is_written_without_a_display(rl4sys: Rl4sys, finished_run: Path, tmp_path: Path) -> None:
    outcome = rl4sys(
        "simulate", finished_run, "--max-path-length", "3", "--video", "film.mp4", "options.sutton_barto_reward=true"
    )
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out.endswith("video: film.mp4\n")
    assert "│ 0.00" in outcome.out, "the option of the environment is in force"
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"


MISTAKES = {
    "no display": (["--render", "human"], "a window needs a display, and this machine has none"),
    "no display, in other words": (["--render-kwargs", '{"mode": "human"}'], "a window needs a display"),
    "no JSON": (["--render-kwargs", "human"], "--render-kwargs is 'human', which is not JSON"),
    "an unknown argument": (["--render-kwargs", '{"width": 9}'], '--render-kwargs is {"width": 9}; it should be'),
    "no such video": (["--video", "a.avi"], "its name should end in .mp4 or .gif"),
    "two views": (["--video", "a.mp4", "--render", "human"], "do not go together"),
    "no such checkpoint": (["--checkpoint", "worst"], "no checkpoint 'worst' in"),
    "another environment": (["--environment", "Acrobot-v1"], "this policy was made for observations"),
}


def test_mistakes_are_told(rl4sys: Rl4sys, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for mistake, (arguments, message) in MISTAKES.items():
        outcome = rl4sys("simulate", finished_run, *arguments)
        assert outcome.exit_code == 2, mistake
        assert message in outcome.err, mistake


def test_what_does_not_go_together_is_told(rl4sys: Rl4sys, finished_run: Path, tmp_path: Path) -> None:
    checkpoint = finished_run / "checkpoints" / "latest"
    twice = rl4sys("simulate", checkpoint, "--checkpoint", "best")
    assert "--checkpoint best chooses one of a run's, and" in twice.err
    lone = shutil.copy(checkpoint / "policy.safetensors", tmp_path / "lone.safetensors")
    assert "holds a policy and not what it acts in; name that: --environment" in rl4sys("simulate", lone).err
