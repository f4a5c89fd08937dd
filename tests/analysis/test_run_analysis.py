"""Analysis of one run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl4sys.analysis.curves import make_curve
from rl4sys.analysis.history import History, open_history
from rl4sys.analysis.run_analysis import analyze_run, largest_drop
from rl4sys.analysis.run_report import fact_rows, milestone_rows, run_chart, to_json, to_page

from .runs import COMPLETED, Row, returns, write_run


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    def make(rows: Sequence[Row] = (), *changes: str, **status: Any) -> History:
        return open_history(write_run(tmp_path / "run", rows, changes, {**COMPLETED, **status}))

    return make


def remarks(run: History, kind: str) -> str:
    return "\n".join(remark.text for remark in analyze_run(run).remarks if remark.kind == kind)


def test_largest_drop_is_from_best_to_later_minimum() -> None:
    drop = largest_drop(make_curve([1, 2, 3, 4, 5, 6], [5.0, 9.0, 7.0, 10.0, 4.0, 8.0]))
    assert (drop.best, drop.best_at, drop.worst, drop.worst_at, drop.size) == (10.0, 4, 4.0, 5, 6.0)


def test_rising_curve_has_no_drop() -> None:
    assert largest_drop(make_curve([1, 2, 3], [1.0, 2.0, 2.0])).size == 0
    assert largest_drop(make_curve([7], [1.0])).size == 0


def test_milestone_is_the_first_step_that_reaches_its_return(make_run: Any) -> None:
    analysis = analyze_run(make_run(returns(100, 200, 480, 300, 500)), thresholds=[150, 501])
    milestones = {found.name: (found.value, found.step, found.seconds) for found in analysis.milestones[2:]}
    assert [(r.value, r.step) for r in analysis.milestones[:2]] == [(150, 200), (501, None)]
    assert milestones["solved"] == (475, 300, 300 / 500)
    assert milestones["50% of the improvement"] == (300, 300, 0.6)
    assert milestones["best"] == (500, 500, 1.0)


def test_unknown_environment_has_no_solved_milestone(make_run: Any) -> None:
    analysis = analyze_run(make_run(returns(1, 2), "environment.name=Mine-v0"))
    assert "solved" not in {milestone.name for milestone in analysis.milestones}


def test_successful_run_has_good_remarks(make_run: Any) -> None:
    run = make_run(returns(10, 400, 500, 500))
    assert "The run completed its 1,000 steps." in remarks(run, "good")
    assert "The return ended at or near its best: 500.0." in remarks(run, "good")
    assert remarks(run, "problem") == ""


def test_drop_of_return_is_reported(make_run: Any) -> None:
    hints = remarks(make_run(returns(0, 100, 20, 30)), "hint")
    assert "The return fell from 100.0 (step 200) to 20.0 (step 300), 80% of its range." in hints
    assert "The return ended 70.0 below its best; checkpoints/best has the better policy." in hints


@pytest.mark.parametrize(("values", "rises"), [((1, 2, 3), True), ((1, 3, 3), False), ((1, 3, 2), False)])
def test_longer_training_is_suggested_if_the_last_evaluation_is_the_best(
    make_run: Any, values: tuple[float, ...], rises: bool
) -> None:
    assert ("longer training may improve the policy" in remarks(make_run(returns(*values)), "hint")) == rises


def test_run_without_improvement_is_reported_as_a_problem(make_run: Any) -> None:
    assert "The return never rose above its first value, 30.0." in remarks(make_run(returns(30, 20, 10)), "problem")


@pytest.mark.parametrize("values", [(500, 500, 500), (500, 480, 500), (500, 490, 495)])
def test_run_solved_from_the_start_is_not_reported_as_a_problem(make_run: Any, values: tuple[float, ...]) -> None:
    run = make_run(returns(*values))
    assert remarks(run, "problem") == ""
    assert f"The return ended at {values[-1]}.0; the environment is solved at 475.0." in remarks(run, "good")


def test_return_falling_below_the_solved_threshold_is_reported_as_a_problem(make_run: Any) -> None:
    assert "never rose above its first value, 500.0" in remarks(make_run(returns(500, 490, 400)), "problem")


def test_constant_return_of_unknown_environment_gives_a_hint(make_run: Any) -> None:
    run = make_run(returns(7, 7, 7), "environment.name=Mine-v0")
    assert remarks(run, "problem") == ""
    assert "The return was 7.000 at the start and at the end, and never higher" in remarks(run, "hint")


def test_remark_on_failure_has_reason_and_checkpoint(make_run: Any) -> None:
    run = make_run(returns(1), status="failed", steps=400, error="loss/policy is NaN")
    (run.path / "checkpoints" / "failed_400").mkdir(parents=True)
    problems = remarks(run, "problem")
    assert "The run failed at step 400 of 1,000: loss/policy is NaN" in problems
    assert "The state at the failure is in checkpoints/failed_400." in problems


def test_remark_on_stopped_run_has_resume_command(make_run: Any) -> None:
    run = make_run(returns(1), status="stopped", steps=400)
    assert f"The run was stopped at step 400 of 1,000; continue with rl4sys train --resume {run.path}" in remarks(
        run, "problem"
    )


def test_running_and_killed_runs_are_distinguished(make_run: Any) -> None:
    killed = make_run(status="running")
    assert "The run was interrupted at step 1,000 of 1,000" in remarks(killed, "problem")
    with (killed.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = open_history(killed.path)
    assert "The run is running, at step 1,000 of 1,000; results may still change." in remarks(running, "hint")


def test_nan_metrics_and_refused_steps_are_reported_as_problems(make_run: Any) -> None:
    rows = [
        {"step": 100, "loss/value": 1.0, "learner/refused_steps": 0.0},
        {"step": 200, "loss/value": float("nan"), "learner/refused_steps": 50.0},
    ]
    problems = remarks(make_run(rows), "problem")
    assert "loss/value was not a finite number in 1 row, first at step 200." in problems
    assert "50 steps (5.0%) were refused because their policy was too old." in problems


def test_missing_metrics_and_evaluations_are_reported(make_run: Any, tmp_path: Path) -> None:
    run = make_run()
    assert "The run has written no metrics yet." in remarks(run, "problem")
    analysis = analyze_run(run)
    assert analysis.curve is None
    assert analysis.milestones == ()
    assert "No returns yet." in to_page(analysis, run_chart(run))
    live = open_history(write_run(tmp_path / "live", returns(1, 2, metric="episode/return")))
    assert "never evaluated" in remarks(live, "hint")
    assert analyze_run(live).metric == "episode/return"


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("policy/entropy", [0.7, 0.5, 0.06, 0.05], "The entropy fell from 0.700 to 0.050 nats: since step 300"),
        (
            "value/explained_variance",
            [0.9, 0.5, 0.1, 0.1],
            "predicts the returns poorly: its explained variance was 0.100 recently",
        ),
        ("policy/clip_fraction", [0.1, 0.2, 0.3, 0.4], "40% of the recent steps are clipped"),
        ("loss/gradient_norm", [1.0, 2.0, 3.0, 30.0], "The gradient norm grew by a factor of 30."),
    ],
)
def test_unhealthy_curves_give_hints(make_run: Any, metric: str, values: list[float], expected: str) -> None:
    assert expected in remarks(make_run(returns(*values, metric=metric)), "hint")


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
def test_healthy_curves_give_no_hints(make_run: Any, metric: str, values: list[float]) -> None:
    rows = [*returns(*values, metric=metric), {"step": 1, "evaluation/return": 1.0}]
    assert remarks(make_run(rows), "hint") == ""


def test_alerts_are_reported_once_per_rule(make_run: Any) -> None:
    run = make_run(returns(1))
    alerts = [
        {"rule": "slow", "status": "firing", "step": 10, "message": "slow once"},
        {"rule": "slow", "status": "cleared", "step": 20, "message": "fast again"},
        {"rule": "slow", "status": "firing", "step": 30, "message": "slow again"},
    ]
    (run.path / "alerts.jsonl").write_text("".join(f"{json.dumps(alert)}\n" for alert in alerts))
    assert "Alert slow fired 2 times, last: slow again (step 30)." in remarks(run, "problem")


def test_number_of_resumes_is_reported(make_run: Any) -> None:
    run = make_run(returns(1))
    (run.path / "configs" / "provenance.json").write_text(json.dumps({"resumed": [{}, {}]}))
    assert "The run was resumed 2 times." in remarks(open_history(run.path), "good")


def test_fact_rows_have_key_figures_of_run(make_run: Any) -> None:
    analysis = analyze_run(make_run(returns(10, 30, 20)))
    rows = dict(fact_rows(analysis))
    assert rows["steps"] == "1,000 (500 per second)"
    assert rows["final evaluation/return"] == "20.0 at step 300"
    assert rows["best evaluation/return"] == "30.0 at step 200"
    assert rows["largest drop"] == "10.0: from 30.0 at step 200 to 20.0 at step 300"
    assert ["solved", "475.0", "never", ""] in milestone_rows(analysis)
    content = to_json(analysis)
    assert content["best_at"] == 200
    assert json.dumps(content, allow_nan=False)


def test_returns_share_one_panel_and_each_other_metric_has_its_own(make_run: Any) -> None:
    rows = [{"step": 1, "evaluation/return": 1.0, "episode/return": 2.0, "loss/value": 3.0, "policy/entropy": 4.0}]
    run = make_run(rows)
    chart = run_chart(run)
    assert [panel.title for panel in chart.panels] == ["Return", "Value loss", "Policy entropy"]
    assert [line.label for line in chart.lines] == ["evaluation (greedy)", "training episodes (exploring)"]
    assert [panel.title for panel in run_chart(run, ["loss"]).panels] == ["Value loss"]
