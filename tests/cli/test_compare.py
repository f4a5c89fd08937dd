"""`rl4sys compare` as a user calls it."""

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


def test_results_chances_and_differences_are_shown(rl4sys: Rl4sys, root: Path) -> None:
    outcome = rl4sys("compare", "ppo", "fast")
    assert outcome.exit_code == 0, outcome.err
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "group seeds final IQM [95%] best IQM [95%] reached at steps" in lines
    assert any(line.startswith("ppo 3 55.0 [") for line in lines)
    assert "fast 2 15.0 [10.0, 20.0] 25.0 [20.0, 30.0] 100 200" in lines
    assert "2 fast 0.000 [0.000, 0.000] —" in lines
    assert "algorithm.lr 0.001 0.01" in lines
    assert "gamma" not in outcome.out


def test_files_are_written_where_asked_for(rl4sys: Rl4sys, root: Path, tmp_path: Path) -> None:
    outcome = rl4sys("compare", "ppo", "fast", "--plot", "out/curves.png", "--html", "out/page.html", "--smooth", "3")
    assert outcome.exit_code == 0, outcome.err
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Smoothed over 3 neighbouring values" in (tmp_path / "out" / "page.html").read_text()
    assert "curves written to out/curves.png" in outcome.err


def test_json_is_all_that_is_printed(rl4sys: Rl4sys, root: Path) -> None:
    outcome = rl4sys("compare", "ppo", "--json", "--statistic", "median", "--plot", "a.svg")
    told = json.loads(outcome.out)
    assert told["statistic"] == "median"
    assert told["metrics"]["evaluation/return"]["groups"]["ppo"]["final"]["value"] == 50


def test_a_group_for_every_argument(rl4sys: Rl4sys, root: Path) -> None:
    told = json.loads(rl4sys("compare", "*_*", "--by", "argument", "--json").out)
    assert [(group["group"], len(group["runs"])) for group in told["groups"]] == [("*_*", 5)]


def test_runs_that_have_not_completed_can_be_left_out(rl4sys: Rl4sys, root: Path) -> None:
    write_run(root / "ppo_late", returns(1), ["experiment.name=ppo"], status={"status": "failed"})
    outcome = rl4sys("compare", "ppo", "--completed", "--json")
    assert len(json.loads(outcome.out)["groups"][0]["runs"]) == 3
    assert "left out: ppo_late (failed)" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "has the name or id 'nope'"),
        (["ppo", "--metrics", "evaluation/retrun"], "did you mean evaluation/return?"),
        (["ppo", "--metrics", ","], "--metrics names nothing"),
        (["ppo", "--by", "algorithm.lrr"], "did you mean algorithm.lr?"),
        (["ppo", "--plot", "a.gif"], "should end in .png, .svg or .pdf"),
        (["ppo", "--statistic", "best"], "there is no statistic best"),
    ],
)
def test_mistakes_are_explained(rl4sys: Rl4sys, root: Path, arguments: list[str], message: str) -> None:
    outcome = rl4sys("compare", *arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
