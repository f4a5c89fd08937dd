"""Tests of the command ``rl4sys compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..analysis.runs import returns, write_run, write_seeds
from .conftest import Rl4sys


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    write_seeds(folder, "ppo", [returns(10, 40), returns(10, 50), returns(10, 90)])
    write_seeds(folder, "fast", [returns(20, 10), returns(30, 20)], "algorithm.lr=0.01")
    return folder


def test_compare_shows_results_probabilities_and_differing_settings(rl4sys: Rl4sys, root: Path) -> None:
    outcome = rl4sys("compare", "ppo", "fast")
    assert outcome.exit_code == 0, outcome.err
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "group seeds final IQM [95%] best IQM [95%] reached at steps" in lines
    assert any(line.startswith("ppo 3 55.0 [") for line in lines)
    assert "fast 2 15.0 [10.0, 20.0] 25.0 [20.0, 30.0] 100 200" in lines
    assert "2 fast 0.000 [0.000, 0.000] —" in lines
    assert "algorithm.lr 0.001 0.01" in lines
    assert "gamma" not in outcome.out


@pytest.mark.parametrize("columns", ["80", "40"])
def test_narrow_terminal_truncates_no_value(
    rl4sys: Rl4sys, root: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    arguments = ["compare", "ppo", "fast", "--by", "run", "--metrics", "reward"]
    wide = rl4sys(*arguments).out
    monkeypatch.setenv("COLUMNS", columns)
    narrow = rl4sys(*arguments).out
    assert max(map(len, wide.splitlines())) > 80
    assert narrow.split() == wide.split()


def test_debug_runs_are_compared_only_if_given_by_path(rl4sys: Rl4sys, root: Path) -> None:
    tried = write_run(root / "ppo_tried", returns(500), ["experiment.name=ppo", "experiment.tags=[debug]"])
    outcome = rl4sys("compare", "ppo", "--json")
    assert len(json.loads(outcome.out)["groups"][0]["runs"]) == 3
    assert "skipped: ppo_tried (a debug run)" in outcome.err
    named = json.loads(rl4sys("compare", tried, "--json").out)
    assert [run["run"] for run in named["groups"][0]["runs"]] == [str(tried)]


def test_compare_writes_plot_and_html_files(rl4sys: Rl4sys, root: Path, tmp_path: Path) -> None:
    outcome = rl4sys("compare", "ppo", "fast", "--plot", "out/curves.png", "--html", "out/page.html", "--smooth", "3")
    assert outcome.exit_code == 0, outcome.err
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Smoothed over 3 neighboring values" in (tmp_path / "out" / "page.html").read_text()
    assert "curves written to out/curves.png" in outcome.err


def test_json_option_prints_only_json(rl4sys: Rl4sys, root: Path) -> None:
    outcome = rl4sys("compare", "ppo", "--json", "--statistic", "median", "--plot", "a.svg")
    result = json.loads(outcome.out)
    assert result["statistic"] == "median"
    assert result["metrics"]["evaluation/return"]["groups"]["ppo"]["final"]["value"] == 50


def test_runs_can_be_grouped_by_argument(rl4sys: Rl4sys, root: Path) -> None:
    result = json.loads(rl4sys("compare", "*_*", "--by", "argument", "--json").out)
    assert [(group["group"], len(group["runs"])) for group in result["groups"]] == [("*_*", 5)]


def test_completed_option_excludes_failed_runs(rl4sys: Rl4sys, root: Path) -> None:
    write_run(root / "ppo_late", returns(1), ["experiment.name=ppo"], status={"status": "failed"})
    outcome = rl4sys("compare", "ppo", "--completed", "--json")
    assert len(json.loads(outcome.out)["groups"][0]["runs"]) == 3
    assert "skipped: ppo_late (failed)" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "has the name or id 'nope'"),
        (["ppo", "--metrics", "evaluation/retrun"], "did you mean evaluation/return?"),
        (["ppo", "--metrics", ","], "--metrics is empty; expected metric names, such as reward,loss"),
        (["ppo", "--by", "algorithm.lrr"], "did you mean algorithm.lr?"),
        (["ppo", "--plot", "a.gif"], "expected a file name that ends in .png, .svg or .pdf"),
        (["ppo", "--statistic", "best"], "unknown statistic 'best'"),
    ],
)
def test_invalid_arguments_are_rejected(rl4sys: Rl4sys, root: Path, arguments: list[str], message: str) -> None:
    outcome = rl4sys("compare", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
