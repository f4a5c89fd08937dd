"""Which trials a sweep has, and how their points are ranked."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.config import SHIPPED, load, parse, to_yaml
from rl4sys.errors import ConfigError, RunError
from rl4sys.experiment.config import parse_experiment
from rl4sys.lab.ranking import rank, write_ranking
from rl4sys.lab.series import read_base, read_settings
from rl4sys.lab.sweep import SweepConfig, create_sweep, describe, open_sweep, plan, short_names
from rl4sys.lab.trials import Standing, Status, Trial

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


def settings(**changes: Any) -> SweepConfig:
    given = {"base_config": "ppo_cartpole", "name": "tried", "sweep": {"algorithm.gamma": [0.9, 0.99]}}
    return parse(SweepConfig, {**given, **changes})


def test_the_promised_file_gives_27_trials_of_the_shipped_experiment(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PROMISED)
    read = read_settings(SweepConfig, str(file), "sweeps", [])
    trials = plan(read, read_base(read, file))
    assert read.parallel_jobs == 4
    assert (read.name, len(trials)) == ("own", 27)
    assert len({str(trial.changes) for trial in trials}) == 27
    assert trials[-1].changes == {
        "algorithm.lr": 1e-3,
        "algorithm.clip_ratio": 0.3,
        "network.actor.hidden_dims": [256, 256],
    }


def test_what_ships_is_what_was_promised_and_goes_by_its_name_and_its_path() -> None:
    promised = load("ppo_sweep", "sweeps")
    assert promised == load("configs/sweeps/ppo_sweep.yaml", "sweeps")
    assert promised == load(SHIPPED / "sweeps/ppo_sweep.yaml")
    assert sorted(promised) == ["base_config", "parallel_jobs", "sweep"]


def test_a_file_beside_the_sweep_comes_before_what_ships(tmp_path: Path) -> None:
    (tmp_path / "configs/experiments").mkdir(parents=True)
    own = tmp_path / "configs/experiments/ppo_cartpole.yaml"
    own.write_text("extends: [experiments/ppo_cartpole]\nalgorithm: {gamma: 0.5}\n")
    read = settings(base_config="configs/experiments/ppo_cartpole.yaml")
    assert read_base(read, tmp_path / "sweep.yaml").algorithm.model_dump()["gamma"] == 0.5


def test_every_point_is_trained_with_every_seed() -> None:
    trials = plan(settings(seeds=[4, 5, 6]), small_config("ppo"))
    assert [(t.number, t.point, t.seed) for t in trials[:4]] == [(0, 0, 4), (1, 0, 5), (2, 0, 6), (3, 1, 4)]
    assert len(trials) == 6
    assert {trial.seed for trial in plan(settings(), small_config("ppo"))} == {3}


def test_random_points_are_different_and_the_same_with_the_same_seed() -> None:
    searched = {"algorithm.lr": {"low": 1e-5, "high": 1e-2, "log": True}, "algorithm.epochs": [2, 4]}
    drawn = settings(method="random", samples=6, seed=1, sweep=searched)
    first, again = plan(drawn, small_config("ppo")), plan(drawn, small_config("ppo"))
    other = plan(drawn.model_copy(update={"seed": 2}), small_config("ppo"))
    assert first == again
    assert first != other
    assert len({str(trial.changes) for trial in first}) == 6


def test_more_random_points_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="samples is 3, and only 2 different points were found; lower it"):
        plan(settings(method="random", samples=3), small_config("ppo"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "random"}, "samples, the number of points, goes with method: random"),
        ({"samples": 3}, "samples, the number of points, goes with method: random"),
        ({"sweep": {}}, "sweep is {}; .*at least 1"),
        ({"sweep": {"algorithm.lr": 3}}, r"sweep\.algorithm\.lr is 3; it should be a list of values, such as \[1e-4"),
        ({"sweep": {"algorithm.lr": {"low": 1, "high": 2}}}, "a grid needs values to go through: give algorithm.lr"),
        ({"sweep": {"algorithm.lr": {"lo": 1}}}, r"sweep\.algorithm\.lr\.lo is not a setting.*\n.*Known in .*choices"),
        ({"seeds": [1, 1]}, "seeds are different whole numbers from 0"),
        (
            {"sweep": {"experiment.seed": [1, 2]}},
            "experiment.seed is not to be changed here: give the seeds as `seeds`",
        ),
        (
            {"fixed": {"experiment.threads": 2}},
            "experiment.threads is not to be changed here: each trial computes with",
        ),
        ({"paralel_jobs": 2}, "paralel_jobs is not a setting; did you mean parallel_jobs?"),
        ({"parallel_jobs": 0}, "parallel_jobs is 0; it should be greater than 0 .*one thread"),
    ],
)
def test_mistakes_in_the_file_are_explained(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_a_value_that_cannot_be_trained_with_is_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong = settings(sweep={"algorithm.lr": [1e-3], "algorithm.gamma": [0.9, 1.5]})
    with pytest.raises(ConfigError, match=r"with lr=0.001 gamma=1.5: algorithm\.gamma is 1.5; it should be less than"):
        create_sweep(tmp_path, wrong, small_config("ppo"), datetime.now())
    misspelt = settings(sweep={"algorithm.gama": [0.9]})
    with pytest.raises(ConfigError, match=r"algorithm\.gama is not a setting; did you mean gamma\?"):
        create_sweep(tmp_path, misspelt, small_config("ppo"), datetime.now())
    assert not list(tmp_path.iterdir())


def test_changes_on_the_command_line_reach_the_sweep_or_its_experiment(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PROMISED + "fixed: {training.total_timesteps: 5}\n")
    changes = ["parallel_jobs=2", "seeds=[7, 8]", "training.eval_frequency=99", "algorithm.gamma=0.5"]
    read = read_settings(SweepConfig, str(file), "sweeps", changes)
    assert (read.parallel_jobs, read.seeds) == (2, [7, 8])
    base = read_base(read, file)
    assert (base.training.total_timesteps, base.training.eval_frequency) == (5, 99)
    assert base.algorithm.model_dump()["gamma"] == 0.5


def test_a_sweep_is_opened_as_it_was_planned(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, settings(seeds=[1, 2]), small_config("ppo"), datetime(2026, 1, 2, 3, 4, 5))
    assert made.series.path.name == "tried_20260102-030405"
    opened = open_sweep(made.series.path)
    assert list(opened.trials) == list(made.trials)
    assert opened.series.settings == made.series.settings
    assert [opened.task(trial) for trial in opened.trials] == [made.task(trial) for trial in made.trials]


def test_a_directory_that_is_no_sweep_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be resumed: it has no sweep\.yaml"):
        open_sweep(tmp_path)
    made = create_sweep(tmp_path, settings(), small_config("ppo"), datetime.now())
    (made.series.path / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json cannot be read"):
        open_sweep(made.series.path)


def test_only_one_process_goes_on_with_a_sweep(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, settings(), small_config("ppo"), datetime.now())
    message = "is being trained by another process; wait for it or stop it"
    with made.series.locked(), pytest.raises(RunError, match=message), made.series.locked():
        pass


def test_trials_compute_with_one_thread_and_their_names_say_which_point_they_are_of(tmp_path: Path) -> None:
    several = {**SMALL["ppo"], "experiment": {"name": "mine", "threads": 2}}
    (tmp_path / "base.yaml").write_text(to_yaml(several))
    read = settings(base_config="base.yaml")
    made = create_sweep(tmp_path, read, read_base(read, tmp_path / "sweep.yaml"), datetime.now())
    trained = parse_experiment(made.task(made.trials[1]).settings)
    assert (trained.experiment.name, trained.experiment.threads) == ("tried_001", 1)


def standing(number: int, point: int, seed: int, value: float | None, status: Status = "completed") -> Standing:
    return Standing(Trial(number, point, seed, {"algorithm.gamma": point / 10}), status, value=value)


STANDINGS = [
    standing(0, 0, 1, 10.0),
    standing(1, 0, 2, 20.0),
    standing(2, 1, 1, 40.0),
    standing(3, 1, 2, None, "failed"),
    standing(4, 2, 1, 99.0, "stopped"),
    standing(5, 2, 2, float("nan")),
]


def test_points_are_ranked_by_the_mean_of_their_completed_seeds() -> None:
    best, second, last = rank(STANDINGS, "maximize")
    assert (best.point, best.mean, best.deviation, best.failed) == (1, 40.0, None, 1)
    assert (second.point, second.mean, second.values) == (0, 15.0, {1: 10.0, 2: 20.0})
    assert second.deviation == pytest.approx(7.0710678)
    assert (last.point, last.mean) == (2, None)
    assert [ranked.point for ranked in rank(STANDINGS, "minimize")] == [0, 1, 2]


def test_the_best_point_is_written_as_a_config_to_train(tmp_path: Path) -> None:
    made = create_sweep(tmp_path, settings(), small_config("ppo"), datetime.now())
    write_ranking(made.series, rank(STANDINGS, "maximize"))
    file = made.series.path / "best.yaml"
    best = parse_experiment(load(file))
    assert (best.experiment.name, best.algorithm.model_dump()["gamma"]) == ("tried_best", 0.1)
    assert "reward 40, with\n#   algorithm.gamma: 0.1\n" in file.read_text()


def test_points_are_told_apart_by_as_few_words_as_it_takes() -> None:
    keys = ["algorithm.lr", "network.actor.hidden_dims", "network.critic.hidden_dims"]
    assert list(short_names(keys).values()) == ["lr", "actor.hidden_dims", "critic.hidden_dims"]
    assert describe({"algorithm.lr": 1 / 3, "environment.name": "A"}) == 'lr=0.3333 name="A"'
