"""Tests of ``rl4sys verify``, and of the profile of ``rl4sys train --debug``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl4sys.config import load, override, to_yaml

from .conftest import Rl4sys


def test_verify_reports_identical_run(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("verify", finished_run)
    assert outcome.exit_code == 0, outcome.out + outcome.err
    assert f"{finished_run.name}: identical to step 288 of 288" in outcome.out
    assert "compared: 3 rows of metrics, 2 digests of experience, 2 checkpoints, 2 policies;" in outcome.out


def test_verify_reports_first_difference_and_cause(rl4sys: Rl4sys, finished_run: Path) -> None:
    file = finished_run / "configs/config.yaml"
    file.write_text(to_yaml(override(load(file), ["algorithm.gamma=0.5"])))
    outcome = rl4sys("verify", finished_run)
    assert outcome.exit_code == 1
    assert "differs, first at step 192; identical up to step 0" in outcome.out
    assert "loss/value: " in outcome.out
    assert "more at that step; --json lists them" in outcome.out
    assert "config.yaml was changed after the run started: algorithm.gamma was 0.99 and is 0.5" in outcome.out
    answer = json.loads(rl4sys("verify", finished_run, "--json").out)
    assert answer["identical"] is False
    assert answer["first_difference_step"] == 192
    assert {"step", "part", "name", "recorded", "repeated", "largest"} <= set(answer["differences"][0])


def test_interrupt_has_exit_code_130(rl4sys: Rl4sys, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rl4sys.verification.verify.repeat", interrupted)
    assert rl4sys("verify", finished_run).exit_code == 130


def test_verify_rejects_folder_without_run(rl4sys: Rl4sys, tmp_path: Path) -> None:
    outcome = rl4sys("verify", tmp_path)
    assert outcome.exit_code == 2
    assert "is not a run directory" in outcome.err


def test_debug_run_prints_a_profile(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("train", small_file, "--debug", "--total-timesteps", "200", "training.num_eval_episodes=3")
    assert outcome.exit_code == 0, outcome.err
    assert "--debug sets" not in outcome.out
    for work in ("environment", "acting", "update: backward", "evaluation", "checkpoint"):
        assert f"│ {work} " in outcome.out
    folder = next((tmp_path / "experiments").glob("small_ppo_*")) / "logs/debug"
    written = ["histograms", *sorted(path.name for path in folder.glob("*.*[tn]") if "events" not in path.name)]
    assert "profile.json" in written
    assert f"{', '.join(written)}: {folder.relative_to(tmp_path)}\n" in outcome.out
