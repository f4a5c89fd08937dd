"""Plan, config errors, resume and ranking of sweeps."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.analysis.trials import read_sweep
from rl4sys.config import SHIPPED, load, parse, to_yaml
from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.config import parse_experiment
from rl4sys.sweeps.ranking import rank, rank_series, write_ranking
from rl4sys.sweeps.series import read_base, read_series_config
from rl4sys.sweeps.sweep import SweepConfig, create_sweep, describe, open_sweep, plan, short_names
from rl4sys.sweeps.trials import Trial, TrialState, TrialStatus

from ..conftest import SMALL, small_config

PROMISED = """
# configs/sweeps/ppo_sweep.yaml
base_config: configs/experiments/ppo_cartpole.yaml
sweep:
  algorithm.lr: [1e-4, 3e-4, 1e-3]
  algorithm.clip_ratio: [0.1, 0.2, 0.3]
  network.actor.hidden_dims: [[64, 64], [128, 128], [256, 256]]
parallel_jobs: 4
"""


def sweep_config(**changes: Any) -> SweepConfig:
    given = {"base_config": "ppo_cartpole", "name": "tried", "sweep": {"algorithm.gamma": [0.9, 0.99]}}
    return parse(SweepConfig, {**given, **changes})


def test_documented_sweep_file_gives_27_trials(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PROMISED)
    read = read_series_config(SweepConfig, str(file), "sweeps", [])
    trials = plan(read, read_base(read, file))
    assert read.parallel_jobs == 4
    assert (read.name, len(trials)) == ("own", 27)
    assert len({str(trial.changes) for trial in trials}) == 27
    assert trials[-1].changes == {
        "algorithm.lr": 1e-3,
        "algorithm.clip_ratio": 0.3,
        "network.actor.hidden_dims": [256, 256],
    }


def test_shipped_sweep_is_found_by_name_and_by_path() -> None:
    promised = load("ppo_sweep", "sweeps")
    assert promised == load("configs/sweeps/ppo_sweep.yaml", "sweeps")
    assert promised == load(SHIPPED / "sweeps/ppo_sweep.yaml")
    assert sorted(promised) == ["base_config", "parallel_jobs", "sweep"]


def test_local_base_config_takes_precedence_over_shipped_config(tmp_path: Path) -> None:
    (tmp_path / "configs/experiments").mkdir(parents=True)
    own = tmp_path / "configs/experiments/ppo_cartpole.yaml"
    own.write_text("extends: [experiments/ppo_cartpole]\nalgorithm: {gamma: 0.5}\n")
    read = sweep_config(base_config="configs/experiments/ppo_cartpole.yaml")
    assert read_base(read, tmp_path / "sweep.yaml").algorithm.model_dump()["gamma"] == 0.5


def test_every_point_is_trained_with_every_seed() -> None:
    trials = plan(sweep_config(seeds=[4, 5, 6]), small_config("ppo"))
    assert [(t.number, t.point, t.seed) for t in trials[:4]] == [(0, 0, 4), (1, 0, 5), (2, 0, 6), (3, 1, 4)]
    assert len(trials) == 6
    assert {trial.seed for trial in plan(sweep_config(), small_config("ppo"))} == {3}


def test_random_points_are_distinct_and_reproducible() -> None:
    searched = {"algorithm.lr": {"low": 1e-5, "high": 1e-2, "log": True}, "algorithm.epochs": [2, 4]}
    drawn = sweep_config(method="random", samples=6, seed=1, sweep=searched)
    first, again = plan(drawn, small_config("ppo")), plan(drawn, small_config("ppo"))
    other = plan(drawn.model_copy(update={"seed": 2}), small_config("ppo"))
    assert first == again
    assert first != other
    assert len({str(trial.changes) for trial in first}) == 6


def test_more_samples_than_distinct_points_are_rejected() -> None:
    with pytest.raises(ConfigError, match="samples is 3, but only 2 different points were found; reduce samples"):
        plan(sweep_config(method="random", samples=3), small_config("ppo"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "random"}, "method: random requires samples, the number of points to draw"),
        ({"samples": 3}, "samples can only be set with method: random"),
        ({"sweep": {}}, "sweep is {}; .*at least 1"),
        ({"sweep": {"algorithm.lr": 3}}, r"sweep\.algorithm\.lr is 3; expected a list of values, such as \[1e-4"),
        (
            {"sweep": {"algorithm.lr": {"low": 1, "high": 2}}},
            "a grid needs a finite list of values: give 'algorithm.lr' a list or a step",
        ),
        ({"sweep": {"algorithm.lr": {"lo": 1}}}, r"sweep\.algorithm\.lr\.lo is not a setting.*\n.*Known in .*choices"),
        ({"seeds": [1, 1]}, "expected distinct non-negative integers"),
        (
            {"sweep": {"experiment.seed": [1, 2]}},
            "'experiment.seed' cannot be changed by a sweep or study: list the seeds under `seeds`",
        ),
        (
            {"fixed": {"experiment.threads": 2}},
            "'experiment.threads' cannot be changed by a sweep or study: each trial uses one thread",
        ),
        ({"paralel_jobs": 2}, "paralel_jobs is not a setting; did you mean parallel_jobs?"),
        ({"parallel_jobs": 0}, "parallel_jobs is 0; expected a value greater than 0 .*one thread"),
    ],
)
def test_invalid_sweep_file_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep_config(**changes)


def test_invalid_value_is_rejected_before_any_trial_runs(tmp_path: Path) -> None:
    invalid = sweep_config(sweep={"algorithm.lr": [1e-3], "algorithm.gamma": [0.9, 1.5]})
    with pytest.raises(ConfigError, match=r"with lr=0.001 gamma=1.5: algorithm\.gamma is 1.5; expected a value less"):
        create_sweep(tmp_path, invalid, small_config("ppo"), datetime.now())
    misspelled = sweep_config(sweep={"algorithm.gama": [0.9]})
    with pytest.raises(ConfigError, match=r"algorithm\.gama is not a setting; did you mean gamma\?"):
        create_sweep(tmp_path, misspelled, small_config("ppo"), datetime.now())
    assert not list(tmp_path.iterdir())


def test_command_line_assignments_apply_to_sweep_or_experiment(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PROMISED + "fixed: {training.total_timesteps: 5}\n")
    changes = ["parallel_jobs=2", "seeds=[7, 8]", "training.eval_frequency=99", "algorithm.gamma=0.5"]
    read = read_series_config(SweepConfig, str(file), "sweeps", changes)
    assert (read.parallel_jobs, read.seeds) == (2, [7, 8])
    base = read_base(read, file)
    assert (base.training.total_timesteps, base.training.eval_frequency) == (5, 99)
    assert base.algorithm.model_dump()["gamma"] == 0.5


def test_opened_sweep_equals_created_sweep(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, sweep_config(seeds=[1, 2]), small_config("ppo"), datetime(2026, 1, 2, 3, 4, 5))
    assert made.series.path.name == "tried_20260102-030405"
    opened = open_sweep(made.series.path)
    assert list(opened.trials) == list(made.trials)
    assert opened.series.config == made.series.config
    assert [opened.task(trial) for trial in opened.trials] == [made.task(trial) for trial in made.trials]


def test_resume_rejects_directory_without_sweep_or_with_corrupt_plan(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be resumed: it has no sweep\.yaml"):
        open_sweep(tmp_path)
    made = create_sweep(tmp_path, sweep_config(), small_config("ppo"), datetime.now())
    (made.series.path / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json cannot be read"):
        open_sweep(made.series.path)


def test_sweep_is_locked_against_other_processes(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, sweep_config(), small_config("ppo"), datetime.now())
    message = "is being trained by another process; stop that process, or wait until it ends"
    with made.series.locked(), pytest.raises(RunError, match=message), made.series.locked():
        pass


def test_trials_use_one_thread_and_are_named_after_their_point(tmp_path: Path) -> None:
    two_threads = {**SMALL["ppo"], "experiment": {"name": "mine", "threads": 2}}
    (tmp_path / "base.yaml").write_text(to_yaml(two_threads))
    read = sweep_config(base_config="base.yaml")
    made = create_sweep(tmp_path, read, read_base(read, tmp_path / "sweep.yaml"), datetime.now())
    trained = parse_experiment(made.task(made.trials[1]).settings)
    assert (trained.experiment.name, trained.experiment.threads) == ("tried_001", 1)


def trial_status(
    number: int, point: int, seed: int, value: float | None, state: TrialState = "completed"
) -> TrialStatus:
    return TrialStatus(Trial(number, point, seed, {"algorithm.gamma": point / 10}), state, value=value)


STATUSES = [
    trial_status(0, 0, 1, 10.0),
    trial_status(1, 0, 2, 20.0),
    trial_status(2, 1, 1, 40.0),
    trial_status(3, 1, 2, None, "failed"),
    trial_status(4, 2, 1, 99.0, "stopped"),
    trial_status(5, 2, 2, float("nan")),
]


def test_points_are_ranked_by_mean_of_completed_seeds() -> None:
    best, second, last = rank(STATUSES, "maximize")
    assert (best.point, best.mean, best.deviation, best.failed) == (1, 40.0, None, 1)
    assert (second.point, second.mean, second.values) == (0, 15.0, {1: 10.0, 2: 20.0})
    assert second.deviation == pytest.approx(7.0710678)
    assert (last.point, last.mean) == (2, None)
    assert [ranked.point for ranked in rank(STATUSES, "minimize")] == [0, 1, 2]


def test_best_point_is_written_as_config_file(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, sweep_config(), small_config("ppo"), datetime.now())
    write_ranking(made.series, rank(STATUSES, "maximize"))
    file = made.series.path / "best.yaml"
    best = parse_experiment(load(file))
    assert (best.experiment.name, best.algorithm.model_dump()["gamma"]) == ("tried_best", 0.1)
    assert "reward 40, with\n#   algorithm.gamma: 0.1\n" in file.read_text()


# Without a common metric, trial 1 would be scored by its training return of 900 and win.
MIXED_ROWS = [
    [{"step": 10, "episode/return": 700.0}, {"step": 20, "evaluation/return": 30.0}],
    [{"step": 10, "episode/return": 900.0}],
    [{"step": 10, "episode/return": 800.0}, {"step": 20, "evaluation/return": 50.0}],
]


@pytest.mark.parametrize(
    ("rows", "summary", "expected"),
    [
        (MIXED_ROWS, "final", [900.0, 800.0, 700.0]),
        (MIXED_ROWS[:1] * 2 + MIXED_ROWS[2:], "final", [50.0, 30.0, 30.0]),
        ([[{"step": 1, "evaluation/return": value} for value in (5.0, last)] for last in (1, 2, 3)], "best", [5.0] * 3),
        (
            [[{"step": 1, "evaluation/return": value} for value in (5.0, last)] for last in (1, 2, 3)],
            "mean",
            [4, 3.5, 3],
        ),
        (
            [[{"step": 1, "evaluation/return": value} for value in (5.0, last)] for last in (1, 2, float("nan"))],
            "final",
            [2, 1],
        ),
    ],
)
def test_ranking_and_analysis_give_the_same_scores(
    tmp_path: Path, rows: list[list[dict[str, float]]], summary: str, expected: list[float]
) -> None:
    config = sweep_config(summary=summary, sweep={"algorithm.gamma": [0.9, 0.95, 0.99]})
    path = create_sweep(tmp_path, config, small_config("ppo"), datetime.now()).series.path
    for number, written in enumerate(rows):
        trial = path / f"trial_{number:03d}"
        (trial / "configs").mkdir(parents=True)
        (trial / "configs/config.yaml").write_text(to_yaml(small_config("ppo").to_settings()))
        (trial / "status.json").write_text(json.dumps({"status": "completed", "steps": 20}))
        (trial / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    swept = open_sweep(path)
    ranked = {f"trial_{r.point:03d}": r.mean for r in rank_series(swept.series, swept.statuses) if r.mean is not None}
    analyzed = {trial.name: trial.result for trial in read_sweep(path).completed}
    assert list(ranked.values()) == expected
    assert analyzed == ranked
    assert list(analyzed) == list(ranked), "both sort best first"


def test_short_names_are_shortest_unique_suffixes() -> None:
    keys = ["algorithm.lr", "network.actor.hidden_dims", "network.critic.hidden_dims"]
    assert list(short_names(keys).values()) == ["lr", "actor.hidden_dims", "critic.hidden_dims"]
    assert describe({"algorithm.lr": 1 / 3, "environment.name": "A"}) == 'lr=0.3333 name="A"'
