"""Learning curves: reading, smoothing, alignment and aggregation."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest

from rl4sys.analysis.curves import Curve, aggregate, align, make_curve, smooth
from rl4sys.analysis.history import open_history, read_curves
from rl4sys.analysis.statistics import iqm, mean
from rl4sys.errors import RunError
from rl4sys.runs.directory import RunDirectory

from .runs import returns, write_run


def curve(steps: list[int], values: list[float]) -> Curve:
    return make_curve(steps, values)


def test_curve_keeps_last_value_at_each_step() -> None:
    made = curve([100, 200, 200, 300], [1.0, 2.0, 5.0, 3.0])
    assert made.steps.tolist() == [100, 200, 300]
    assert made.values.tolist() == [1.0, 5.0, 3.0]


def test_nonfinite_values_are_dropped_and_counted() -> None:
    made = curve([1, 2, 3, 4], [1.0, float("nan"), float("inf"), 4.0])
    assert made.steps.tolist() == [1, 4]
    assert (made.dropped, made.first_dropped) == (2, 2)


def test_curve_has_final_and_best_value() -> None:
    made = curve([1, 2, 3, 4], [1.0, 9.0, -2.0, 4.0])
    assert made.final == 4.0
    assert made.best(highest=True) == (9.0, 2)
    assert made.best(highest=False) == (-2.0, 3)


def test_smoothing_is_a_centered_moving_average() -> None:
    smoothed = smooth(curve([1, 2, 3, 4, 5], [1.0, 4.0, 1.0, 4.0, 10.0]), 3)
    assert smoothed.values.tolist() == [1.0, 2.0, 3.0, 5.0, 10.0]
    assert smooth(curve([1, 2], [1.0, 2.0]), 9).values.tolist() == [1.0, 2.0]
    assert smooth(curve([], []), 9).values.tolist() == []


def test_curves_with_equal_steps_are_not_interpolated() -> None:
    steps, values = align([curve([5, 7, 100], [1.0, 2.0, 3.0]), curve([5, 7, 100], [3.0, 2.0, 1.0])])
    assert steps.tolist() == [5, 7, 100]
    assert values.tolist() == [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]


def test_curves_with_different_steps_are_interpolated_over_common_range() -> None:
    # The common range is 100 (start of the second) to 300 (end of the first); the second has three rows in it.
    steps, values = align([curve([0, 200, 300], [0.0, 20.0, 40.0]), curve([100, 150, 250, 400], [5.0, 0.0, 10.0, 0.0])])
    assert steps.tolist() == [100.0, 200.0, 300.0]
    assert values[0].tolist() == [10.0, 20.0, 40.0]
    assert values[1] == pytest.approx([5.0, 5.0, 10.0 - 10.0 / 3])


def test_curves_without_common_range_give_empty_band() -> None:
    band = aggregate([[curve([1, 2], [0.0, 1.0]), curve([5, 6], [0.0, 1.0])]], mean, np.random.default_rng(0))
    assert len(band.steps) == 0
    assert band.low is None


def test_thinned_curves_keep_the_first_and_last_step() -> None:
    long = curve(list(range(1000)), list(map(float, range(1000))))
    steps, values = align([long, long], points=10)
    assert len(steps) == 10
    assert (steps[0], steps[-1]) == (0.0, 999.0)
    assert values[0].tolist() == steps.tolist()


def test_confidence_band_contains_the_center_curve() -> None:
    seeds = [curve([1, 2], [1.0, 10.0]), curve([1, 2], [2.0, 20.0]), curve([1, 2], [6.0, 60.0])]
    band = aggregate([seeds], iqm, np.random.default_rng(0))
    assert band.center == pytest.approx([2.5, 25.0])
    assert band.low is not None
    assert band.high is not None
    assert (band.low < band.center).all()
    assert (band.high > band.center).all()
    assert band.low[1] == pytest.approx(10 * band.low[0])  # whole curves are resampled, not single points


def test_aggregate_ignores_runs_without_values() -> None:
    band = aggregate([[curve([1], [4.0]), curve([], [])], [curve([], [])]], mean, np.random.default_rng(0))
    assert (band.runs, band.center.tolist()) == (1, [4.0])
    assert aggregate([[]], mean, np.random.default_rng(0)).runs == 0


def test_rows_become_one_curve_per_metric(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "a": 1, "b": 2.5}\n{"step": 2, "a": NaN, "note": "x", "flag": true}\n{"step": 3, "a": 4'
    )
    curves = read_curves(RunDirectory(tmp_path))
    assert sorted(curves) == ["a", "b"]
    assert curves["a"].values.tolist() == [1.0]
    assert curves["a"].first_dropped == 2


def test_corrupt_lines_of_metrics_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'\xff\xfe\n[]\n{"a": 1}\n{"step": "x", "a": 1}\n{"step": 5, "a": 2}\n')
    assert read_curves(RunDirectory(tmp_path))["a"].steps.tolist() == [5]


def test_huge_integers_in_metrics_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "a": {10**400}, "b": 1}}\n{{"step": {10**400}, "a": 5, "b": 2}}\n')
    curves = read_curves(RunDirectory(tmp_path))
    assert curves["b"].values.tolist() == [1.0]
    assert len(curves["a"]) == 0


def test_reading_one_metric_does_not_read_all_curves(tmp_path: Path) -> None:
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "b": 2.0}, {"step": 3, "a": 3.0, "b": float("nan")}]
    history = open_history(write_run(tmp_path / "run", rows))
    assert history.curve("a") is not None
    assert history.curve("a").steps.tolist() == [1, 3]  # type: ignore[union-attr]
    assert "curves" not in vars(history)
    assert (history.dropped("b"), history.dropped("a"), history.dropped("c")) == (1, 0, 0)
    assert history.curve("c") is None
    assert sorted(history.curves) == ["a", "b"]
    assert history.curve("b").values.tolist() == [2.0]  # type: ignore[union-attr]


def test_rows_with_different_metrics_form_one_sorted_curve(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a": 2, "b": 9}\n\n{"a": 3, "step": 3}\n')
    assert read_curves(RunDirectory(tmp_path))["a"].values.tolist() == [1.0, 2.0, 3.0]


def test_run_without_metrics_has_no_curves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status=None)
    (run / "metrics.jsonl").unlink()
    history = open_history(run)
    assert history.curves == {}
    assert (history.state, history.steps) == ("created", 0)


def test_history_has_name_seed_state_and_settings(tmp_path: Path) -> None:
    history = open_history(write_run(tmp_path / "run", returns(1, 2), ["experiment.seed=4"]))
    assert (history.name, history.seed, history.state, history.steps) == ("ppo_cartpole", 4, "completed", 1000)
    assert history.setting("algorithm.lr") == 0.001
    assert history.setting("algorithm.lr.start") is None


def test_folder_without_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run directory: it has no configs/config\.yaml"):
        open_history(tmp_path)


def test_corrupt_config_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "configs" / "config.yaml").write_text("{")
    with pytest.raises(RunError, match=r"run is damaged: .* is not valid YAML"):
        open_history(run)


def test_unlocked_run_with_status_running_is_reported_as_interrupted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status={"status": "running"})
    assert open_history(run).state == "interrupted"
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_history(run).state == "running"


def test_corrupt_status_file_is_ignored(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "status.json").write_text("[1")
    assert open_history(run).state == "created"
