"""Tests of the command ``rl4sys analyze``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..analysis.runs import returns, write_run, write_seeds
from .conftest import Rl4sys


def test_analyze_run_shows_results_and_writes_files(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_run(tmp_path / "experiments" / "mine_1", returns(10, 90, 40))
    outcome = rl4sys("analyze", "mine", "--threshold", "50", "--plot", "a.svg", "--html", "a.html")
    assert outcome.exit_code == 0, outcome.err
    assert "The return fell from 90.0 (step 200) to 40.0 (step 300)" in outcome.out
    assert "threshold" in outcome.out
    assert "return per episode" in (tmp_path / "a.svg").read_text()
    assert "Run mine_1" in (tmp_path / "a.html").read_text()


def test_analyze_sweep_shows_results_and_writes_files(rl4sys: Rl4sys, tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2)):
        curves = [returns(number * 10), returns(number * 10 + 1), returns(number * 10 + 2)]
        write_seeds(tmp_path / "sweep", f"lr{number}", curves, f"algorithm.lr={lr}")
    outcome = rl4sys("analyze", "sweep", "--plot", "a.png", "--html", "a.html")
    assert outcome.exit_code == 0, outcome.err
    assert "6 trials: 6 completed" in outcome.out
    assert "importance of settings" in outcome.out
    assert "algorithm.lr" in outcome.out
    assert "Sweep sweep" in (tmp_path / "a.html").read_text()


def test_analyze_experiment_shows_results_over_its_seeds(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_seeds(tmp_path / "experiments", "ppo", [returns(0, 40), returns(0, 50), returns(0, 90)])
    outcome = rl4sys("analyze", "ppo", "--plot", "a.svg", "--html", "a.html", "--threshold", "45")
    assert outcome.exit_code == 0, outcome.err
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert any(line.startswith("ppo 3 55.0 [40.0, 90.0]") for line in lines)
    assert "threshold 45.0 2 of 3 200" in lines
    assert "Line: interquartile mean over seeds; band: 95% bootstrap interval." in lines
    assert any("⠀" <= letter <= "⣿" for line in lines for letter in line)
    assert "hint: The seeds ended far apart: from 40.0 (seed 0) to 90.0 (seed 2)" in outcome.out
    assert "return per episode" in (tmp_path / "a.svg").read_text()
    assert "Seeds of ppo" in (tmp_path / "a.html").read_text()


def test_given_runs_are_analyzed_as_seeds(rl4sys: Rl4sys, tmp_path: Path) -> None:
    first, second, _ = write_seeds(tmp_path / "experiments", "ppo", [returns(0, 40), returns(0, 50), returns(0, 90)])
    result = json.loads(rl4sys("analyze", first, second.name, "--json").out)
    assert [run["run"] for run in result["runs"]] == [str(first), str(Path("experiments") / second.name)]
    assert result["metrics"]["evaluation/return"]["groups"]["ppo"]["final"]["value"] == 45
    assert len(json.loads(rl4sys("analyze", "ppo_*", "--json").out)["runs"]) == 3


def test_experiment_with_different_settings_is_rejected(rl4sys: Rl4sys, tmp_path: Path) -> None:
    for lr in ("0.1", "0.2"):
        write_run(tmp_path / "experiments" / f"x{lr}", returns(1), ["experiment.name=mixed", f"algorithm.lr={lr}"])
    outcome = rl4sys("analyze", "mixed")
    assert outcome.exit_code == 2
    assert "or use rl4sys compare" in " ".join(outcome.err.split())


def test_json_option_prints_only_json(rl4sys: Rl4sys, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns(10, 90))
    assert json.loads(rl4sys("analyze", run, "--json").out)["best"] == 90
    assert json.loads(rl4sys("analyze", tmp_path, "--json").out)["metric"] == "evaluation/return"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "has the name or id 'nope'"),
        (["r"], "'r' matches several folders: r_1, r_2; give a longer prefix"),
        (["r_1", "--metrics", "evaluation/retrun"], "did you mean evaluation/return?"),
        (["r_1", "--plot", "a.gif"], "expected a file name that ends in .png, .svg or .pdf"),
        (["experiments", "--threshold", "3"], "--threshold applies to runs, not to sweeps; remove --threshold"),
        (["empty"], "contains no runs"),
    ],
)
def test_invalid_arguments_are_rejected(rl4sys: Rl4sys, tmp_path: Path, arguments: list[str], message: str) -> None:
    for name in ("r_1", "r_2"):
        write_run(tmp_path / "experiments" / name, returns(1, 2))
    (tmp_path / "empty").mkdir()
    outcome = rl4sys("analyze", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
