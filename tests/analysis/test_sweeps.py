"""What is said of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl4sys.analysis.sweep_report import (
    analyse_sweep,
    failure_rows,
    importance_headings,
    importance_in_words,
    importance_rows,
    outline,
    point_headings,
    point_rows,
    sweep_chart,
    to_json,
    to_page,
    trial_rows,
)
from rl4sys.analysis.trials import is_sweep, read_sweep
from rl4sys.errors import RunError

from .runs import COMPLETED, returns, write_run

FAILED = {**COMPLETED, "status": "failed", "steps": 5, "error": "loss is NaN\nmore"}


def write_sweep(folder: Path, results: dict[tuple[float, float, int], float | None], **settings: Any) -> Path:
    """Trials by (lr, gamma, seed); None is one that failed."""
    rows = []
    for number, ((lr, gamma, seed), result) in enumerate(results.items()):
        changes = {"algorithm.lr": lr, "algorithm.gamma": gamma}
        assignments = [f"{key}={value}" for key, value in changes.items()]
        written = returns(1, result) if result is not None else []
        status = COMPLETED if result is not None else FAILED
        write_run(folder / f"trial_{number:03d}", written, [*assignments, f"experiment.seed={seed}"], status)
        rows.append({"number": number, "seed": seed, "changes": changes, "directory": f"trial_{number:03d}"})
    rows.append({"number": 99, "seed": 0, "changes": rows[0]["changes"], "directory": "trial_099"})
    (folder / "plan.json").write_text(json.dumps({"trials": rows}))
    (folder / "sweep.yaml").write_text(json.dumps({"metric": "reward", "summary": "final", **settings}))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Twice 2 × 2: the step size is worth 100, the discount 10, the seed 1; one trial failed."""
    results = {
        (lr, gamma, seed): 100.0 * (lr == 0.1) + 10.0 * (gamma == 0.9) + seed
        for lr in (0.1, 0.2)
        for gamma in (0.9, 0.8)
        for seed in (0, 1)
    }
    return write_sweep(tmp_path / "sweep", {**results, (0.5, 0.5, 0): None})


def test_trials_are_read_with_what_was_changed_and_what_they_came_to(sweep: Path) -> None:
    found = read_sweep(sweep)
    best = found.trials[0]
    assert (best.name, best.result, best.seed) == ("trial_001", 111.0, 1)
    assert best.changes == {"algorithm.lr": 0.1, "algorithm.gamma": 0.9}
    assert found.settings == ("algorithm.lr", "algorithm.gamma")
    assert [trial.result for trial in found.completed] == [111, 110, 101, 100, 11, 10, 1, 0]
    assert {trial.name: trial.state for trial in found.trials[-2:]} == {"trial_008": "failed", "trial_099": "waiting"}


def test_lower_results_come_first_where_less_is_better(tmp_path: Path) -> None:
    results = {(0.1, 0.9, 0): 5.0, (0.2, 0.9, 0): 3.0}
    found = read_sweep(write_sweep(tmp_path / "s", results, direction="minimize"))
    assert [trial.result for trial in found.completed] == [3.0, 5.0]
    assert point_rows(analyse_sweep(found))[0][0] == "0.2"


@pytest.mark.parametrize(
    ("summary", "direction", "result"),
    [("best", "minimize", 1.0), ("best", "maximize", 5.0), ("mean", "maximize", 3.0), ("final", "maximize", 5.0)],
)
def test_trials_are_judged_as_the_sweep_says(tmp_path: Path, summary: str, direction: str, result: float) -> None:
    folder = write_sweep(tmp_path / "s", {(0.1, 0.9, 0): 5.0}, direction=direction, summary=summary)
    assert read_sweep(folder).completed[0].result == result


def test_points_put_seeds_together(sweep: Path) -> None:
    analysis = analyse_sweep(read_sweep(sweep))
    assert point_headings(analysis) == ["lr", "gamma", "trials", "final evaluation/return", "lowest … highest"]
    rows = point_rows(analysis)
    assert rows[0] == ["0.1", "0.9", "2 of 3", "110.5", "110.0 … 111.0"]
    assert rows[-1] == ["0.5", "0.5", "0 of 1", "—", ""]


def test_long_numbers_are_shown_in_short_and_told_apart_in_full(tmp_path: Path) -> None:
    results = {(0.1 + 0.2, 0.123456789, 0): 5.0, (0.3, 0.123456781, 0): 3.0}
    analysis = analyse_sweep(read_sweep(write_sweep(tmp_path / "s", results)))
    assert [row[:2] for row in point_rows(analysis)] == [["0.3", "0.1235"], ["0.3", "0.1235"]]


def test_settings_are_ranked_by_what_they_explain(sweep: Path) -> None:
    analysis = analyse_sweep(read_sweep(sweep))
    rows = importance_rows(analysis)
    assert [row[0] for row in rows] == ["algorithm.lr", "algorithm.gamma"]
    assert rows[0][1:3] == ["0.1: 105.5, 0.2: 5.500", "99%"]
    told = importance_in_words(analysis)
    assert "what the setting alone explains" in told[0]
    assert any(words.startswith("Between seeds of the same settings lies 0%") for words in told)


def test_a_study_is_told_by_optunas_own_measure_too(sweep: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=f"sqlite:///{sweep}/study.db", study_name="study", direction="maximize")
    spaces = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("algorithm.lr", "algorithm.gamma")}
    for trial in read_sweep(sweep).completed:
        study.add_trial(optuna.trial.create_trial(params=dict(trial.changes), distributions=spaces, value=trial.result))
    analysis = analyse_sweep(read_sweep(sweep))
    assert set(analysis.of_optuna) == set(spaces)
    assert importance_headings(analysis)[-1] == "Optuna's share"
    assert importance_rows(analysis)[0][-1] == f"{analysis.of_optuna['algorithm.lr']:.0%}"
    assert any("PED-ANOVA" in words for words in importance_in_words(analysis))
    (sweep / "study.db").write_bytes(b"no database")
    with pytest.raises(RunError, match=r"the study in .*study\.db cannot be read"):
        analyse_sweep(read_sweep(sweep))


def test_failures_are_counted_by_reason(sweep: Path) -> None:
    analysis = analyse_sweep(read_sweep(sweep))
    assert failure_rows(analysis) == [["loss is NaN", "1", "trial_008"]]
    assert outline(analysis) == "10 trials: 8 completed, 1 failed, 1 waiting"


def test_too_few_trials_say_nothing_of_importance(tmp_path: Path) -> None:
    analysis = analyse_sweep(read_sweep(write_sweep(tmp_path / "s", {(0.1, 0.9, 0): 5.0})))
    assert importance_rows(analysis) == []
    assert "1 completed trial, and at least 4" in importance_in_words(analysis)[0]
    assert "1 completed trial" in to_page(analysis)


def test_a_folder_of_runs_without_a_plan_is_analysed_by_what_differs(tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2, 0.3, 0.4)):
        write_run(
            tmp_path / "folder" / f"r{number}", returns(1, number), [f"algorithm.lr={lr}", f"experiment.name=r{number}"]
        )
    found = read_sweep(tmp_path / "folder")
    assert found.settings == ("algorithm.lr",)
    assert found.trials[0].changes == {"algorithm.lr": 0.4}
    assert not is_sweep(tmp_path / "folder")


def test_an_empty_folder_and_a_damaged_plan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no runs; give a run, or the folder of a sweep"):
        read_sweep(tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json cannot be read: .*; it should list the trials"):
        read_sweep(tmp_path)


def test_the_chart_shows_the_best_points_and_the_shares(sweep: Path) -> None:
    chart = sweep_chart(analyse_sweep(read_sweep(sweep)))
    assert [panel.title for panel in chart.panels] == [
        "Return of evaluations: the best points",
        "Which settings mattered",
    ]
    assert chart.lines[0].label == "lr=0.1, gamma=0.9 (2 seeds)"
    assert "The best 4 points of 5." in chart.caption


def test_pages_and_json_hold_it_all(sweep: Path) -> None:
    analysis = analyse_sweep(read_sweep(sweep))
    page = to_page(analysis)
    for words in ("lr=0.1, gamma=0.9 (2 seeds)", "Which settings mattered", "loss is NaN", "trial_008"):
        assert words in page
    told = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    assert told["importance"][0]["setting"] == "algorithm.lr"
    assert told["failures"] == {"loss is NaN": ["trial_008"]}
    assert len(trial_rows(analysis)) == 10
