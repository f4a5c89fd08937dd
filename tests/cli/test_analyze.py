"""``rl4sys analyze``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..analysis.runs import returns, write_run, write_seeds
from .conftest import Rl4sys


def test_run_analysis_is_shown(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_run(tmp_path / "experiments" / "mine_1", returns(10, 90, 40))
    outcome = rl4sys("analyze", "mine", "--threshold", "50", "--plot", "a.svg", "--html", "a.html")
    assert outcome.exit_code == 0, outcome.err
    assert "The return fell from 90.0 (step 200) to 40.0 (step 300)" in outcome.out
    assert "threshold" in outcome.out
    assert "return per episode" in (tmp_path / "a.svg").read_text()
    assert "Run mine_1" in (tmp_path / "a.html").read_text()


def test_sweep_analysis_is_shown(rl4sys: Rl4sys, tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2)):
        curves = [returns(number * 10), returns(number * 10 + 1), returns(number * 10 + 2)]
        write_seeds(tmp_path / "sweep", f"lr{number}", curves, f"algorithm.lr={lr}")
    outcome = rl4sys("analyze", "sweep", "--plot", "a.png", "--html", "a.html")
    assert outcome.exit_code == 0, outcome.err
    assert "6 trials: 6 completed" in outcome.out
    assert "importance of settings" in outcome.out
    assert "algorithm.lr" in outcome.out
    assert "Sweep sweep" in (tmp_path / "a.html").read_text()


def test_json_is_the_only_output(rl4sys: Rl4sys, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns(10, 90))
    assert json.loads(rl4sys("analyze", run, "--json").out)["best"] == 90
    assert json.loads(rl4sys("analyze", tmp_path, "--json").out)["metric"] == "evaluation/return"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "has the name or id 'nope'"),
        (["r"], "'r' matches r_1, r_2; write more of the name"),
        (["r_1", "--metrics", "evaluation/retrun"], "did you mean evaluation/return?"),
        (["r_1", "--plot", "a.gif"], "should end in .png, .svg or .pdf"),
        (["experiments", "--threshold", "3"], "--threshold applies to runs, not to sweeps; remove --threshold"),
        (["empty"], "holds no runs"),
    ],
)
def test_invalid_arguments_are_explained(rl4sys: Rl4sys, tmp_path: Path, arguments: list[str], message: str) -> None:
    for name in ("r_1", "r_2"):
        write_run(tmp_path / "experiments" / name, returns(1, 2))
    (tmp_path / "empty").mkdir()
    outcome = rl4sys("analyze", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
