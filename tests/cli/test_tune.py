"""Tests of ``rl4sys tune`` with trials in child processes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from rl4sys.config import to_yaml
from rl4sys.sweeps.tune import open_study

from ..conftest import SMALL
from .conftest import Rl4sys

SMALL_STUDY = {
    "base_config": "base.yaml",
    "search": {"algorithm.lr": {"low": 1e-7, "high": 1e-2, "log": True}, "algorithm.epochs": [1, 4]},
    "start": [{"algorithm.lr": 1e-2, "algorithm.epochs": 4}, {"algorithm.lr": 1e-7, "algorithm.epochs": 1}],
    "n_trials": 2,
    # Prunes the second trial as soon as it is worse than the first.
    "pruning": {"startup_trials": 1, "percentile": 0},
    "fixed": {"training.eval_frequency": 192},
}


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(to_yaml(SMALL["ppo"]))
    file = tmp_path / "small_study.yaml"
    file.write_text(to_yaml(SMALL_STUDY))
    return file


def series_in(root: Path) -> Path:
    (file,) = root.glob("*/study.yaml")
    return file.parent


def test_study_prunes_trials_and_can_be_extended(rl4sys: Rl4sys, study_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("tune", study_file)
    assert outcome.exit_code == 0, outcome.err
    path = series_in(tmp_path / "experiments")
    first, second = open_study(path).optuna_study.trials
    assert (first.state.name, second.state.name) == ("COMPLETE", "PRUNED")
    steps = [json.loads((path / f"trial_00{n}/status.json").read_bytes())["steps"] for n in range(2)]
    assert steps[0] == 960
    assert steps[1] == second.last_step < 960
    assert "2 of 2 trials done, 1 of them stopped early" in outcome.out
    assert re.search(r"│ 1    │ 0     │ \d+\.\d\s+│ 1     │ lr=0\.01 epochs=4", outcome.out)
    assert rl4sys("config", "check", path / "best.yaml").exit_code == 0

    assert "3 trials, 2 already finished" in rl4sys("tune", "--resume", path, "n_trials=3", "--dry-run").out
    assert len(open_study(path).optuna_study.trials) == 2
    longer = rl4sys("tune", "--resume", path.name, "n_trials=3")
    assert longer.exit_code == 0, longer.err
    assert "3 trials, 2 already finished" in longer.out
    assert len(open_study(path).optuna_study.trials) == 3


def test_dry_run_shows_the_search_space_and_writes_nothing(rl4sys: Rl4sys, tmp_path: Path) -> None:
    outcome = rl4sys("tune", "ppo_tune", "n_trials=7", "--dry-run")
    assert outcome.exit_code == 0, outcome.err
    assert re.search(r"algorithm\.lr\s+│ {'low': 1e-06, 'high': 0\.01, 'log': True}", outcome.out)
    assert "start: {'algorithm.lr': 1e-06," in outcome.out
    assert "7 trials, 2 at a time; nothing was run" in outcome.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no study config given; try `rl4sys tune ppo_tune --dry-run`"),
        (["ppo_tun"], r"no config file 'ppo_tun', and no shipped study of that name; did you mean ppo_tune\?"),
        (["ppo_tune", "--resume", "here"], "the config 'ppo_tune' cannot be combined with --resume"),
        (["--resume", "nowhere"], r"nowhere cannot be resumed: it has no study\.yaml"),
        (
            ["--resume", "here", "seed=2"],
            r"'seed' cannot be changed when a study is resumed; start a new study\. "
            "Settings that can be changed: n_trials, timeout, parallel_jobs",
        ),
        (["ppo_tune", "serch=1"], r"serch is not a setting; did you mean search\?"),
    ],
)
def test_invalid_arguments_are_rejected(rl4sys: Rl4sys, arguments: list[str], message: str) -> None:
    outcome = rl4sys("tune", *arguments)
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err)


def test_missing_optuna_package_is_reported(rl4sys: Rl4sys, study_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    outcome = rl4sys("tune", study_file)
    assert (outcome.exit_code, "pip install -e '.[tune]'" in outcome.err) == (2, True)
