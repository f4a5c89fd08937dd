"""Learning curves: read, smoothed, aligned, put together."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest

from rl4sys.analysis.curves import Curve, aggregate, align, make_curve, smooth
from rl4sys.analysis.history import open_history, read_curves
from rl4sys.analysis.statistics import iqm, mean
from rl4sys.errors import RunError

from .runs import returns, write_run


def curve(steps: list[int], values: list[float]) -> Curve:
    return make_curve(steps, values)


def test_a_curve_keeps_the_last_of_several_values_at_one_step() -> None:
    made = curve([100, 200, 200, 300], [1.0, 2.0, 5.0, 3.0])
    assert made.steps.tolist() == [100, 200, 300]
    assert made.values.tolist() == [1.0, 5.0, 3.0]


def test_values_that_are_no_number_are_left_out_and_counted() -> None:
    made = curve([1, 2, 3, 4], [1.0, float("nan"), float("inf"), 4.0])
    assert made.steps.tolist() == [1, 4]
    assert (made.dropped, made.first_dropped) == (2, 2)


def test_final_and_best_of_a_curve() -> None:
    made = curve([1, 2, 3, 4], [1.0, 9.0, -2.0, 4.0])
    assert made.final == 4.0
    assert made.best(highest=True) == (9.0, 2)
    assert made.best(highest=False) == (-2.0, 3)


def test_smoothing_averages_as_many_neighbours_on_either_side() -> None:
    smoothed = smooth(curve([1, 2, 3, 4, 5], [1.0, 4.0, 1.0, 4.0, 10.0]), 3)
    assert smoothed.values.tolist() == [1.0, 2.0, 3.0, 5.0, 10.0]
    assert smooth(curve([1, 2], [1.0, 2.0]), 9).values.tolist() == [1.0, 2.0]
    assert smooth(curve([], []), 9).values.tolist() == []


def test_curves_at_the_same_steps_are_not_interpolated() -> None:
    steps, values = align([curve([5, 7, 100], [1.0, 2.0, 3.0]), curve([5, 7, 100], [3.0, 2.0, 1.0])])
    assert steps.tolist() == [5, 7, 100]
    assert values.tolist() == [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]


def test_curves_at_other_steps_meet_on_lines_between_their_rows_over_the_range_they_share() -> None:
    # From 100, where the second begins, to 300, where the first ends; three rows of the second lie within.
    steps, values = align([curve([0, 200, 300], [0.0, 20.0, 40.0]), curve([100, 150, 250, 400], [5.0, 0.0, 10.0, 0.0])])
    assert steps.tolist() == [100.0, 200.0, 300.0]
    assert values[0].tolist() == [10.0, 20.0, 40.0]
    assert values[1] == pytest.approx([5.0, 5.0, 10.0 - 10.0 / 3])


def test_curves_that_share_no_step_give_nothing() -> None:
    band = aggregate([[curve([1, 2], [0.0, 1.0]), curve([5, 6], [0.0, 1.0])]], mean, np.random.default_rng(0))
    assert len(band.steps) == 0
    assert band.low is None


def test_long_curves_are_drawn_at_some_of_their_own_rows_with_both_ends() -> None:
    long = curve(list(range(1000)), list(map(float, range(1000))))
    steps, values = align([long, long], points=10)
    assert len(steps) == 10
    assert (steps[0], steps[-1]) == (0.0, 999.0)
    assert values[0].tolist() == steps.tolist()


def test_the_band_of_seeds_holds_their_centre() -> None:
    seeds = [curve([1, 2], [1.0, 10.0]), curve([1, 2], [2.0, 20.0]), curve([1, 2], [6.0, 60.0])]
    band = aggregate([seeds], iqm, np.random.default_rng(0))
    assert band.centre == pytest.approx([2.5, 25.0])
    assert band.low is not None
    assert band.high is not None
    assert (band.low < band.centre).all()
    assert (band.high > band.centre).all()
    assert band.low[1] == pytest.approx(10 * band.low[0])  # whole curves are drawn, not point by point


def test_seeds_without_a_value_do_not_count() -> None:
    band = aggregate([[curve([1], [4.0]), curve([], [])], [curve([], [])]], mean, np.random.default_rng(0))
    assert (band.runs, band.centre.tolist()) == (1, [4.0])
    assert aggregate([[]], mean, np.random.default_rng(0)).runs == 0


def test_rows_are_read_into_a_curve_for_each_metric(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "a": 1, "b": 2.5}\n{"step": 2, "a": NaN, "note": "x", "flag": true}\n{"step": 3, "a": 4'
    )
    curves = read_curves(path)
    assert sorted(curves) == ["a", "b"]
    assert curves["a"].values.tolist() == [1.0]
    assert curves["a"].first_dropped == 2


def test_lines_that_are_no_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'\xff\xfe\n[]\n{"a": 1}\n{"step": "x", "a": 1}\n{"step": 5, "a": 2}\n')
    assert read_curves(path)["a"].steps.tolist() == [5]


def test_numbers_too_large_to_be_any_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "a": {10**400}, "b": 1}}\n{{"step": {10**400}, "a": 5, "b": 2}}\n')
    curves = read_curves(path)
    assert curves["b"].values.tolist() == [1.0]
    assert len(curves["a"]) == 0


def test_one_metric_is_read_without_the_rows_of_others(tmp_path: Path) -> None:
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "b": 2.0}, {"step": 3, "a": 3.0, "b": float("nan")}]
    history = open_history(write_run(tmp_path / "run", rows))
    assert history.curve("a") is not None
    assert history.curve("a").steps.tolist() == [1, 3]  # type: ignore[union-attr]
    assert "curves" not in vars(history)
    assert (history.dropped("b"), history.dropped("a"), history.dropped("c")) == (1, 0, 0)
    assert history.curve("c") is None
    assert sorted(history.curves) == ["a", "b"]
    assert history.curve("b").values.tolist() == [2.0]  # type: ignore[union-attr]


def test_metrics_of_rows_of_different_kinds_are_one_curve_in_the_order_of_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a": 2, "b": 9}\n\n{"a": 3, "step": 3}\n')
    assert read_curves(path)["a"].values.tolist() == [1.0, 2.0, 3.0]


def test_a_run_that_has_written_nothing_has_no_curves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status=None)
    (run / "metrics.jsonl").unlink()
    history = open_history(run)
    assert history.curves == {}
    assert (history.state, history.steps) == ("created", 0)


def test_a_run_tells_what_it_is(tmp_path: Path) -> None:
    history = open_history(write_run(tmp_path / "run", returns(1, 2), ["experiment.seed=4"]))
    assert (history.name, history.seed, history.state, history.steps) == ("ppo_cartpole", 4, "completed", 1000)
    assert history.setting("algorithm.lr") == 0.001
    assert history.setting("algorithm.lr.start") is None


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run directory: it has no configs/config\.yaml"):
        open_history(tmp_path)


def test_a_run_whose_config_is_damaged_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "configs" / "config.yaml").write_text("{")
    with pytest.raises(RunError, match=r"run is damaged: .* is not valid YAML"):
        open_history(run)


def test_a_run_that_says_it_is_running_but_that_no_process_holds_was_interrupted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status={"status": "running"})
    assert open_history(run).state == "interrupted"
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_history(run).state == "running"


def test_a_damaged_status_is_as_good_as_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "status.json").write_text("[1")
    assert open_history(run).state == "created"
