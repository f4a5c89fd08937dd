"""What is said of one run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl4sys.analysis.curves import make_curve
from rl4sys.analysis.history import History, open_history
from rl4sys.analysis.run_analysis import analyse_run, largest_drop
from rl4sys.analysis.run_report import fact_rows, reached_rows, run_chart, to_json, to_page

from .runs import COMPLETED, Row, returns, write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    def make(rows: Sequence[Row] = (), *changes: str, **status: Any) -> History:
        return open_history(write_run(tmp_path / "run", rows, changes, {**COMPLETED, **status}))

    return make


def words(run: History, kind: str) -> str:
    return "\n".join(remark.words for remark in analyse_run(run).remarks if remark.kind == kind)


def test_the_largest_drop_is_from_a_best_to_a_later_low() -> None:
    drop = largest_drop(make_curve([1, 2, 3, 4, 5, 6], [5.0, 9.0, 7.0, 10.0, 4.0, 8.0]))
    assert (drop.best, drop.best_at, drop.worst, drop.worst_at, drop.size) == (10.0, 4, 4.0, 5, 6.0)


def test_a_curve_that_only_rises_never_drops() -> None:
    assert largest_drop(make_curve([1, 2, 3], [1.0, 2.0, 2.0])).size == 0
    assert largest_drop(make_curve([7], [1.0])).size == 0


def test_returns_are_reached_at_the_first_row_that_has_them(make_run: Any) -> None:
    analysis = analyse_run(make_run(returns(100, 200, 480, 300, 500)), thresholds=[150, 501])
    told = {reached.name: (reached.value, reached.step, reached.seconds) for reached in analysis.reached[2:]}
    assert [(r.value, r.step) for r in analysis.reached[:2]] == [(150, 200), (501, None)]
    assert told["counts as solved"] == (475, 300, 300 / 500)
    assert told["50% of the way up from the first"] == (300, 300, 0.6)
    assert told["the best"] == (500, 500, 1.0)


def test_an_environment_unknown_to_gymnasium_is_never_solved(make_run: Any) -> None:
    analysis = analyse_run(make_run(returns(1, 2), "environment.name=Mine-v0"))
    assert "counts as solved" not in {reached.name for reached in analysis.reached}


def test_a_run_that_went_well_is_said_to(make_run: Any) -> None:
    run = make_run(returns(10, 400, 500, 500))
    assert "It completed its 1,000 steps." in words(run, "good")
    assert "It ended at its best, or close: 500.0." in words(run, "good")
    assert words(run, "problem") == ""


def test_a_run_that_lost_what_it_had_learnt_is_told_where(make_run: Any) -> None:
    hints = words(make_run(returns(0, 100, 20, 30)), "hint")
    assert "The return fell from 100.0 (step 200) to 20.0 (step 300), 80% of the range it went through." in hints
    assert "It ended 70.0 below its best; checkpoints/best holds the better policy." in hints


@pytest.mark.parametrize(("values", "rises"), [((1, 2, 3), True), ((1, 3, 3), False), ((1, 3, 2), False)])
def test_a_run_that_still_rises_may_gain_from_more(make_run: Any, values: tuple[float, ...], rises: bool) -> None:
    assert ("may gain from training longer" in words(make_run(returns(*values)), "hint")) == rises


def test_a_run_that_never_rose_is_a_problem(make_run: Any) -> None:
    assert "The return never rose above its first value, 30.0." in words(make_run(returns(30, 20, 10)), "problem")


def test_a_failure_is_told_with_its_reason_and_what_was_kept(make_run: Any) -> None:
    run = make_run(returns(1), status="failed", steps=400, error="loss/policy is NaN")
    (run.path / "checkpoints" / "failed_400").mkdir(parents=True)
    problems = words(run, "problem")
    assert "It failed at step 400 of 1,000: loss/policy is NaN" in problems
    assert "The state at the failure is in checkpoints/failed_400." in problems


def test_a_stopped_run_is_told_with_how_to_go_on(make_run: Any) -> None:
    run = make_run(returns(1), status="stopped", steps=400)
    assert f"It was stopped at step 400 of 1,000; rl4sys train --resume {run.path} goes on" in words(run, "problem")


def test_a_running_one_is_told_to_be_and_one_that_was_killed_too(make_run: Any) -> None:
    killed = make_run(status="running")
    assert "It was interrupted at step 1,000 of 1,000" in words(killed, "problem")
    with (killed.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = open_history(killed.path)
    assert "It is running, at step 1,000 of 1,000; what follows may change." in words(running, "hint")


def test_numbers_that_are_none_and_refused_steps_are_problems(make_run: Any) -> None:
    rows = [
        {"step": 100, "loss/value": 1.0, "learner/refused_steps": 0.0},
        {"step": 200, "loss/value": float("nan"), "learner/refused_steps": 50.0},
    ]
    problems = words(make_run(rows), "problem")
    assert "loss/value was not a finite number in 1 row, first at step 200." in problems
    assert "50 steps (5.0%) were refused because their policy was too old." in problems


def test_a_run_without_rows_or_evaluations_says_so(make_run: Any, tmp_path: Path) -> None:
    run = make_run()
    assert "It has written no metrics yet." in words(run, "problem")
    analysis = analyse_run(run)
    assert analysis.curve is None
    assert analysis.reached == ()
    assert "No returns yet." in to_page(analysis, run_chart(run))
    live = open_history(write_run(tmp_path / "live", returns(1, 2, metric="episode/return")))
    assert "never evaluated" in words(live, "hint")
    assert analyse_run(live).metric == "episode/return"


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("policy/entropy", [0.7, 0.5, 0.06, 0.05], "The entropy fell from 0.700 to 0.050 nats: since step 300"),
        ("value/explained_variance", [0.9, 0.5, 0.1, 0.1], "foresees little of the returns (0.100 of 1, lately)"),
        ("policy/clip_fraction", [0.1, 0.2, 0.3, 0.4], "The clip holds 40% of the steps, lately"),
        ("loss/gradient_norm", [1.0, 2.0, 3.0, 30.0], "Gradients grew 30 times as long."),
    ],
)
def test_other_curves_give_hints(make_run: Any, metric: str, values: list[float], expected: str) -> None:
    assert expected in words(make_run(returns(*values, metric=metric)), "hint")


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("policy/entropy", [0.7, 0.6, 0.5, 0.4]),
        ("policy/entropy", [-1.0, -2.0, -3.0, -4.0]),
        ("value/explained_variance", [0.0, 0.2, 0.8, 0.9]),
        ("policy/clip_fraction", [0.5, 0.2, 0.1, 0.1]),
        ("loss/gradient_norm", [1.0, 2.0, 3.0, 3.0]),
        ("policy/entropy", [0.7, 0.0]),
    ],
)
def test_curves_as_they_should_be_give_none(make_run: Any, metric: str, values: list[float]) -> None:
    rows = [*returns(*values, metric=metric), {"step": 1, "evaluation/return": 1.0}]
    assert words(make_run(rows), "hint") == ""


def test_alerts_are_told_once_for_each_rule(make_run: Any) -> None:
    run = make_run(returns(1))
    alerts = [
        {"rule": "slow", "status": "firing", "step": 10, "message": "slow once"},
        {"rule": "slow", "status": "cleared", "step": 20, "message": "fast again"},
        {"rule": "slow", "status": "firing", "step": 30, "message": "slow anew"},
    ]
    (run.path / "alerts.jsonl").write_text("".join(f"{json.dumps(alert)}\n" for alert in alerts))
    assert "Alert slow, told 2 times, last: slow anew (step 30)." in words(run, "problem")


def test_how_often_it_was_taken_up_again_is_told(make_run: Any) -> None:
    run = make_run(returns(1))
    (run.path / "configs" / "provenance.json").write_text(json.dumps({"resumed": [{}, {}]}))
    assert "It was taken up again 2 times." in words(open_history(run.path), "good")


def test_the_figures_of_a_run(make_run: Any) -> None:
    analysis = analyse_run(make_run(returns(10, 30, 20)))
    rows = dict(fact_rows(analysis))
    assert rows["steps"] == "1,000 (500 a second)"
    assert rows["final evaluation/return"] == "20.0 at step 300"
    assert rows["best evaluation/return"] == "30.0 at step 200"
    assert rows["largest drop"] == "10.0: from 30.0 at step 200 to 20.0 at step 300"
    assert ["counts as solved", "475.0", "never", ""] in reached_rows(analysis)
    told = to_json(analysis)
    assert told["best_at"] == 200
    assert json.dumps(told, allow_nan=False)


def test_the_chart_has_returns_together_and_every_other_metric_by_itself(make_run: Any) -> None:
    rows = [{"step": 1, "evaluation/return": 1.0, "episode/return": 2.0, "loss/value": 3.0, "policy/entropy": 4.0}]
    run = make_run(rows)
    chart = run_chart(run)
    assert [panel.title for panel in chart.panels] == ["Return", "Value loss", "Entropy of the policy"]
    assert [line.label for line in chart.lines] == ["evaluations, greedy", "training episodes, exploring"]
    assert [panel.title for panel in run_chart(run, ["loss"]).panels] == ["Value loss"]
