"""Analysis of sweeps and studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl4sys.analysis.sweep_report import (
    analyze_sweep,
    count_trials,
    failure_rows,
    importance_headings,
    importance_notes,
    importance_rows,
    point_headings,
    point_rows,
    sweep_chart,
    to_json,
    to_page,
    trial_rows,
)
from rl4sys.analysis.trials import read_sweep
from rl4sys.errors import RunError
from rl4sys.runs.series_files import is_series

from .runs import COMPLETED, returns, write_run

FAILED = {**COMPLETED, "status": "failed", "steps": 5, "error": "loss is NaN\nmore"}


def write_sweep(folder: Path, results: dict[tuple[float, float, int], float | None], **settings: Any) -> Path:
    """Write a sweep with a result for each (lr, gamma, seed), where None means a failed trial, and a waiting trial."""
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
    """Return a sweep with a failed trial. The result is the sum of 100 for lr 0.1, 10 for gamma 0.9, and the seed."""
    results = {
        (lr, gamma, seed): 100.0 * (lr == 0.1) + 10.0 * (gamma == 0.9) + seed
        for lr in (0.1, 0.2)
        for gamma in (0.9, 0.8)
        for seed in (0, 1)
    }
    return write_sweep(tmp_path / "sweep", {**results, (0.5, 0.5, 0): None})


def test_trials_have_changes_and_scores(sweep: Path) -> None:
    found = read_sweep(sweep)
    best = found.trials[0]
    assert (best.name, best.result, best.seed) == ("trial_001", 111.0, 1)
    assert best.changes == {"algorithm.lr": 0.1, "algorithm.gamma": 0.9}
    assert found.settings == ("algorithm.lr", "algorithm.gamma")
    assert [trial.result for trial in found.completed] == [111, 110, 101, 100, 11, 10, 1, 0]
    assert {trial.name: trial.state for trial in found.trials[-2:]} == {"trial_008": "failed", "trial_099": "waiting"}


def test_minimized_results_are_sorted_ascending(tmp_path: Path) -> None:
    results = {(0.1, 0.9, 0): 5.0, (0.2, 0.9, 0): 3.0}
    found = read_sweep(write_sweep(tmp_path / "s", results, direction="minimize"))
    assert [trial.result for trial in found.completed] == [3.0, 5.0]
    assert point_rows(analyze_sweep(found))[0][0] == "0.2"


@pytest.mark.parametrize(
    ("summary", "direction", "result"),
    [("best", "minimize", 1.0), ("best", "maximize", 5.0), ("mean", "maximize", 3.0), ("final", "maximize", 5.0)],
)
def test_sweep_settings_determine_the_trial_scores(tmp_path: Path, summary: str, direction: str, result: float) -> None:
    folder = write_sweep(tmp_path / "s", {(0.1, 0.9, 0): 5.0}, direction=direction, summary=summary)
    assert read_sweep(folder).completed[0].result == result


def test_score_of_a_point_combines_its_seeds(sweep: Path) -> None:
    analysis = analyze_sweep(read_sweep(sweep))
    assert point_headings(analysis) == ["lr", "gamma", "trials", "final evaluation/return", "lowest … highest"]
    rows = point_rows(analysis)
    assert rows[0] == ["0.1", "0.9", "2 of 3", "110.5", "110.0 … 111.0"]
    assert rows[-1] == ["0.5", "0.5", "0 of 1", "—", ""]


def test_points_with_equal_shortened_values_stay_distinct(tmp_path: Path) -> None:
    results = {(0.1 + 0.2, 0.123456789, 0): 5.0, (0.3, 0.123456781, 0): 3.0}
    analysis = analyze_sweep(read_sweep(write_sweep(tmp_path / "s", results)))
    assert [row[:2] for row in point_rows(analysis)] == [["0.3", "0.1235"], ["0.3", "0.1235"]]


def test_settings_are_ranked_by_explained_variance(sweep: Path) -> None:
    analysis = analyze_sweep(read_sweep(sweep))
    rows = importance_rows(analysis)
    assert [row[0] for row in rows] == ["algorithm.lr", "algorithm.gamma"]
    assert rows[0][1:3] == ["0.1: 105.5, 0.2: 5.500", "99%"]
    notes = importance_notes(analysis)
    assert "explained by the setting alone" in notes[0]
    assert any(note.startswith("Different seeds with the same settings account for 0%") for note in notes)


def test_study_analysis_includes_importance_from_optuna(sweep: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=f"sqlite:///{sweep}/study.db", study_name="study", direction="maximize")
    spaces = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("algorithm.lr", "algorithm.gamma")}
    for trial in read_sweep(sweep).completed:
        study.add_trial(optuna.trial.create_trial(params=dict(trial.changes), distributions=spaces, value=trial.result))
    analysis = analyze_sweep(read_sweep(sweep))
    assert set(analysis.optuna_importance) == set(spaces)
    assert importance_headings(analysis)[-1] == "Optuna's share"
    assert importance_rows(analysis)[0][-1] == f"{analysis.optuna_importance['algorithm.lr']:.0%}"
    assert any("PED-ANOVA" in note for note in importance_notes(analysis))
    (sweep / "study.db").write_bytes(b"no database")
    with pytest.raises(RunError, match=r"the study in .*study\.db cannot be read"):
        analyze_sweep(read_sweep(sweep))


def test_failures_are_grouped_by_reason(sweep: Path) -> None:
    analysis = analyze_sweep(read_sweep(sweep))
    assert failure_rows(analysis) == [["loss is NaN", "1", "trial_008"]]
    assert count_trials(analysis) == "10 trials: 8 completed, 1 failed, 1 waiting"


def test_too_few_trials_have_no_importance(tmp_path: Path) -> None:
    analysis = analyze_sweep(read_sweep(write_sweep(tmp_path / "s", {(0.1, 0.9, 0): 5.0})))
    assert importance_rows(analysis) == []
    assert "has 1 completed trial, and at least 4" in importance_notes(analysis)[0]
    assert "1 completed trial" in to_page(analysis)


def test_folder_without_plan_is_analyzed_by_differing_settings(tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2, 0.3, 0.4)):
        write_run(
            tmp_path / "folder" / f"r{number}", returns(1, number), [f"algorithm.lr={lr}", f"experiment.name=r{number}"]
        )
    found = read_sweep(tmp_path / "folder")
    assert found.settings == ("algorithm.lr",)
    assert found.trials[0].changes == {"algorithm.lr": 0.4}
    assert not is_series(tmp_path / "folder")


def test_empty_folder_and_corrupt_plan_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="contains no runs; give a run, or the folder of a sweep"):
        read_sweep(tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json cannot be read: .*; expected a JSON object with a list of trials"):
        read_sweep(tmp_path)


def test_sweep_chart_shows_best_points_and_importance(sweep: Path) -> None:
    chart = sweep_chart(analyze_sweep(read_sweep(sweep)))
    assert [panel.title for panel in chart.panels] == [
        "Evaluation return: best points",
        "Importance of settings",
    ]
    assert chart.lines[0].label == "lr=0.1, gamma=0.9 (2 seeds)"
    assert "Best 4 points of 5." in chart.caption


def test_sweep_page_and_json_are_complete(sweep: Path) -> None:
    analysis = analyze_sweep(read_sweep(sweep))
    page = to_page(analysis)
    for text in ("lr=0.1, gamma=0.9 (2 seeds)", "Importance of settings", "loss is NaN", "trial_008"):
        assert text in page
    content = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    assert content["importance"][0]["setting"] == "algorithm.lr"
    assert content["failures"] == {"loss is NaN": ["trial_008"]}
    assert len(trial_rows(analysis)) == 10
