"""Analysis of runs that differ only in the seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl4sys.analysis.charts import Panel
from rl4sys.analysis.comparison import ComparisonOptions, compare
from rl4sys.analysis.groups import group_runs
from rl4sys.analysis.history import History, open_history
from rl4sys.analysis.seed_analysis import analyze_seeds
from rl4sys.analysis.seed_report import reached_rows, seed_rows, seeds_chart, to_json, to_page
from rl4sys.errors import RunError

from .runs import returns, write_run, write_seeds


def seeds_with(root: Path, *finals: float) -> list[History]:
    """Return runs that start at a return of 0 and end at `finals`."""
    return [open_history(path) for path in write_seeds(root, "ppo", [returns(0, final) for final in finals])]


def remarks(runs: list[History], kind: str) -> str:
    return "\n".join(remark.text for remark in analyze_seeds(runs).remarks if remark.kind == kind)


def test_results_are_those_of_compare(tmp_path: Path) -> None:
    runs = seeds_with(tmp_path, 40, 50, 90)
    expected = compare(group_runs([("", runs)]), ["reward"], ComparisonOptions()).metrics[0].summaries[0]
    summary = analyze_seeds(runs).comparison.metrics[0].summaries[0]
    assert summary.final == expected.final
    assert (summary.final.value, summary.final.runs) == (55.0, 3)


def test_seeds_that_end_far_apart_are_reported(tmp_path: Path) -> None:
    text = remarks(seeds_with(tmp_path, 500, 200, 400), "hint")
    assert "The seeds ended far apart: from 200.0 (seed 1) to 500.0 (seed 0), 60% of the range" in text


def test_seeds_that_end_close_together_are_reported(tmp_path: Path) -> None:
    assert "The seeds ended close together: from 480.0 to 500.0." in remarks(
        seeds_with(tmp_path, 480, 500, 490), "good"
    )


def test_outlier_is_reported(tmp_path: Path) -> None:
    text = remarks(seeds_with(tmp_path, 500, 490, 100, 495, 480), "hint")
    assert text.count("Outlier") == 1
    assert "Outlier: seed 2 ended at 100.0; the median of the seeds is 490.0." in text


@pytest.mark.parametrize("finals", [(500, 500, 100), (10, 20, 480, 500), (500, 500, 500, 499), (0, 100, 200, 300, 400)])
def test_small_groups_and_uniform_results_have_no_outlier(tmp_path: Path, finals: tuple[float, ...]) -> None:
    assert "Outlier" not in remarks(seeds_with(tmp_path, *finals), "hint")


def test_more_seeds_are_suggested_for_a_small_group(tmp_path: Path) -> None:
    assert "5 or more seeds" in remarks(seeds_with(tmp_path / "few", 1, 2, 3, 4), "hint")
    assert "5 or more seeds" not in remarks(seeds_with(tmp_path / "many", 1, 2, 3, 4, 5), "hint")


def test_repeated_seed_is_reported_as_a_problem(tmp_path: Path) -> None:
    runs = seeds_with(tmp_path, 10, 20)
    again = open_history(write_run(tmp_path / "again", returns(0, 20), ["experiment.name=ppo", "experiment.seed=1"]))
    assert "Several runs have the same seed (1)" in remarks([*runs, again], "problem")
    assert remarks(runs, "problem") == ""


def test_runs_that_are_not_completed_are_reported(tmp_path: Path) -> None:
    runs = seeds_with(tmp_path, 10, 20)
    changes = ["experiment.name=ppo", "experiment.seed=7"]
    failed = open_history(write_run(tmp_path / "f", returns(0, 20), changes, {"status": "failed"}))
    assert "these runs are not completed: f (failed)" in remarks([*runs, failed], "hint")


def test_runs_with_different_settings_are_rejected(tmp_path: Path) -> None:
    runs = seeds_with(tmp_path, 10, 20)
    other = open_history(write_run(tmp_path / "o", returns(1), ["experiment.name=ppo", "algorithm.lr=0.01"]))
    with pytest.raises(RunError, match=r"ppo lr=0.001 \(2 runs\), ppo lr=0.01 \(1 run\); analyze takes runs that"):
        analyze_seeds([*runs, other])


def test_threshold_is_reported_with_the_seeds_that_reached_it(tmp_path: Path) -> None:
    analysis = analyze_seeds(seeds_with(tmp_path, 300, 100, 400), thresholds=[200])
    assert reached_rows(analysis)[0] == ["threshold", "200.0", "2 of 3", "200"]
    assert ["solved", "475.0", "0 of 3", "—"] in reached_rows(analysis)


def test_seeds_are_listed_best_first(tmp_path: Path) -> None:
    analysis = analyze_seeds(seeds_with(tmp_path, 300, 100, 400))
    assert [row[1] for row in seed_rows(analysis)] == ["2", "0", "1"]
    assert seed_rows(analysis)[0][2:] == ["completed", "400.0", "400.0", "200", "1,000"]


def test_chart_has_an_interval_over_seeds(tmp_path: Path) -> None:
    analysis = analyze_seeds(seeds_with(tmp_path, 300, 100, 400))
    [panel] = seeds_chart(analysis).panels
    assert isinstance(panel, Panel)
    band = panel.lines[0].band
    assert band.low is not None
    assert band.high is not None
    assert band.low[-1] < band.center[-1] < band.high[-1]


def test_page_and_json_have_results_and_remarks(tmp_path: Path) -> None:
    analysis = analyze_seeds(seeds_with(tmp_path, 300, 100, 400))
    page = to_page(analysis, seeds_chart(analysis))
    assert "Seeds of ppo" in page
    assert "The seeds ended far apart" in page
    assert "interquartile mean over seeds" in page
    content = to_json(analysis)
    assert json.dumps(content, allow_nan=False)
    assert [run["final"] for run in content["runs"]] == [300, 100, 400]


def test_runs_without_returns_can_be_analyzed(tmp_path: Path) -> None:
    runs = [open_history(path) for path in write_seeds(tmp_path, "ppo", [[], []])]
    analysis = analyze_seeds(runs)
    assert [row[3] for row in seed_rows(analysis)] == ["—", "—"]
    assert to_page(analysis, seeds_chart(analysis))
