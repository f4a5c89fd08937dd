"""Studies with simulated trials: the returns are a function of the settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.config import change, load, parse
from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.config import parse_experiment
from rl4sys.sweeps.ranking import rank, write_ranking
from rl4sys.sweeps.scheduler import TrialScheduler
from rl4sys.sweeps.series import read_base, read_series_config
from rl4sys.sweeps.study_plots import draw_study
from rl4sys.sweeps.trials import Ended, Evaluated, Event, TrialStatus, TrialTask
from rl4sys.sweeps.tune import Study, TuneConfig, create_study, extend_study, open_study

from ..conftest import small_config

SEARCH = {
    "algorithm.lr": {"low": 1e-6, "high": 1e-1, "log": True},
    "algorithm.epochs": {"low": 1, "high": 9, "integer": True},
    "network.actor.hidden_dims": [[8], [16, 16]],
}
BAD = {"algorithm.lr": 1e-6, "algorithm.epochs": 1, "network.actor.hidden_dims": [8]}
STEPS = (300, 600, 960)


def study_config(**changes: Any) -> TuneConfig:
    given = {
        "base_config": "ppo_cartpole",
        "name": "tried",
        "search": SEARCH,
        "start": [BAD],
        "n_trials": 7,
        "startup_trials": 3,
        "pruning": {"startup_trials": 2},
    }
    return parse(TuneConfig, {**given, **changes})


def simulated_return(trained: Mapping[str, Any], step: int) -> float:
    """Simulate an evaluation return: highest at a learning rate of 0.001, and growing with epochs, step and seed."""
    rate, epochs = trained["algorithm"]["lr"], trained["algorithm"]["epochs"]
    rate = rate["start"] if isinstance(rate, dict) else rate
    return (100 - 10 * (math.log10(rate) + 3) ** 2 + epochs) * step / 960 + trained["experiment"]["seed"] / 100


class Killed(Exception):
    """Exception that simulates a SIGKILL of the study's process."""


class SimulatedEngine:
    """Engine whose trials write simulated returns to their run directories and wait for decisions."""

    def __init__(self, capacity: int = 1, *, reverse: bool = False, max_events: int | None = None) -> None:
        self.capacity, self._reverse, self._events_left = capacity, reverse, max_events
        self._trials: dict[int, list[Event]] = {}
        self._waiting: set[int] = set()
        self.started: list[int] = []
        self.steps: dict[int, int] = {}
        self.is_broken: Callable[[Mapping[str, Any]], bool] = lambda settings: False
        self.return_at: Callable[[Mapping[str, Any], int], float] = simulated_return

    def start(self, task: TrialTask) -> None:
        self.started.append(task.number)
        if self.is_broken(task.settings):
            self._trials[task.number] = [Ended(task.number, "failed", "it broke")]
            return
        task.path.mkdir(exist_ok=True)
        self._paths = {**getattr(self, "_paths", {}), task.number: task}
        events: list[Event] = [Evaluated(task.number, step, self.return_at(task.settings, step)) for step in STEPS]
        self._trials[task.number] = [*events, Ended(task.number, "completed")]

    def events(self, timeout_seconds: float) -> list[Event]:
        found = []
        for number in sorted(self._trials, reverse=self._reverse):
            if number not in self._waiting:
                found.append(self._event(number))
        return found

    def _event(self, number: int) -> Event:
        if self._events_left is not None:
            self._events_left -= 1
            if self._events_left < 0:
                raise Killed
        event = self._trials[number].pop(0)
        if isinstance(event, Ended):
            del self._trials[number]
        elif isinstance(event, Evaluated):
            self._waiting.add(number)
            self._write(self._paths[number], event.step, "running")
        return event

    def send_decision(self, number: int, *, proceed: bool) -> None:
        self._waiting.discard(number)
        if not proceed:
            self._trials[number] = [Ended(number, "stopped")]
        if not proceed or isinstance(self._trials[number][0], Ended):
            self._write(self._paths[number], self.steps[number], "completed" if proceed else "stopped")

    def _write(self, task: TrialTask, step: int, status: str) -> None:
        self.steps[task.number] = step
        rows = [{"step": at, "evaluation/return": self.return_at(task.settings, at)} for at in STEPS if at <= step]
        (task.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (task.path / "status.json").write_text(json.dumps({"status": status, "steps": step, "total_timesteps": 960}))

    def stop(self) -> None:
        self._trials = {number: [Ended(number, "stopped")] for number in self._trials}

    def close(self) -> None:
        pass


class NullObserver:
    def show(self, status: TrialStatus) -> None: ...

    def tick(self) -> None: ...


def new_study(root: Path, **changes: Any) -> Study:
    return create_study(root, study_config(**changes), small_config("ppo"), datetime.now())


def run(study: Study, engine: SimulatedEngine | None = None, stopping: Callable[[], bool] = lambda: False) -> Study:
    TrialScheduler(study, engine or SimulatedEngine(), NullObserver(), retries=0).run(stopping)
    return study


def outcomes(study: Study) -> list[tuple[Any, ...]]:
    """Return all stored results of a study except times."""
    return [
        (trial.number, trial.state.name, trial.params, trial.value, trial.intermediate_values)
        for trial in study.optuna_study.trials
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, SimulatedEngine]:
    engine = SimulatedEngine()
    return run(new_study(tmp_path_factory.mktemp("straight")), engine), engine


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    return outcomes(run(new_study(tmp_path_factory.mktemp("unbroken"), parallel_jobs=2), SimulatedEngine(capacity=2)))


def test_study_finds_better_settings_than_its_start_point(straight: tuple[Study, SimulatedEngine]) -> None:
    study, engine = straight
    best = rank(study.completed(), "maximize")[0]
    first = study.optuna_study.trials[0]
    assert study.optuna_study.changes(0) == BAD
    assert first.value is not None
    assert best.mean is not None
    assert best.mean > first.value + 50
    pruned = [trial for trial in study.optuna_study.trials if trial.state.name == "PRUNED"]
    assert pruned, "no trial was stopped early"
    assert all(engine.steps[trial.number] == trial.last_step < 960 for trial in pruned)


def test_study_is_reproducible_from_its_seed(tmp_path: Path, straight: tuple[Study, SimulatedEngine]) -> None:
    again, other = run(new_study(tmp_path)), run(new_study(tmp_path / "other", seed=2, n_trials=3))
    assert outcomes(again) == outcomes(straight[0])
    assert outcomes(other)[0] == outcomes(again)[0]
    assert outcomes(other)[1:] != outcomes(again)[1:3]


def test_order_in_which_trials_end_does_not_change_the_study(tmp_path: Path, unbroken: list[tuple[Any, ...]]) -> None:
    assert outcomes(run(new_study(tmp_path, parallel_jobs=2), SimulatedEngine(capacity=2, reverse=True))) == unbroken
    assert {"COMPLETE", "PRUNED"} == {outcome[1] for outcome in unbroken}


@pytest.mark.parametrize("events", [3, 9, 16])
def test_killed_study_resumes_to_the_same_result(tmp_path: Path, events: int, unbroken: list[tuple[Any, ...]]) -> None:
    study = new_study(tmp_path, parallel_jobs=2)
    with pytest.raises(Killed):
        run(study, SimulatedEngine(capacity=2, max_events=events))
    done = study.finished_count
    assert done < 7
    engine = SimulatedEngine(capacity=2)
    resumed = run(open_study(study.series.path), engine)
    assert outcomes(resumed) == unbroken
    assert all(number >= done // 2 * 2 for number in engine.started), "finished trials are not run again"


def points(*exponents: float) -> list[dict[str, Any]]:
    """Return start points with the given base-10 logarithms of the learning rate."""
    return [{**BAD, "algorithm.lr": 10.0**exponent} for exponent in exponents]


def test_kill_while_storing_outcomes_does_not_change_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The return of the third trial drops at the second evaluation. If the third trial counted as completed before the
    # fourth is evaluated, the fourth trial would not be pruned at this step.
    curves = {-1: (10, 20, 30), -2: (14, 24, 34), -3: (50, 5, 60), -4: (13, 21, 40)}
    study = new_study(tmp_path, parallel_jobs=2, n_trials=4, start=points(*curves))

    def engine() -> SimulatedEngine:
        made = SimulatedEngine(capacity=2)
        made.return_at = lambda trained, step: curves[round(math.log10(trained["algorithm"]["lr"]))][STEPS.index(step)]
        return made

    finish = study.optuna_study.finish

    def finish_all_but_last(number: int, *rest: Any) -> None:
        if number == 3:
            raise Killed
        finish(number, *rest)

    monkeypatch.setattr(study.optuna_study, "finish", finish_all_but_last)
    with pytest.raises(Killed):
        run(study, engine())
    assert [study.optuna_study.is_open(number) for number in (2, 3)] == [False, True]
    resumed = run(open_study(study.series.path), engine())
    assert [trial.state.name for trial in resumed.optuna_study.trials] == [*["COMPLETE"] * 3, "PRUNED"]


def test_kill_before_pruning_decision_does_not_change_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pruning = {"startup_trials": 2, "warmup_steps": 600}
    study = new_study(tmp_path, n_trials=3, start=points(-3, -3.1, -6), pruning=pruning)
    should_prune = study.optuna_study.should_prune

    def kill_at_third_trial(number: int, *rest: Any) -> bool:
        if number == 2 and study.optuna_study.newest_step(number) == 600:
            raise Killed
        return should_prune(number, *rest)

    monkeypatch.setattr(study.optuna_study, "should_prune", kill_at_third_trial)
    with pytest.raises(Killed):
        run(study)
    engine = SimulatedEngine()
    resumed = run(open_study(study.series.path), engine)
    assert resumed.optuna_study.trials[2].state.name == "PRUNED"
    assert engine.steps == {2: 600}, "the third trial is pruned at step 600, not earlier"


def test_point_pruned_at_first_seed_skips_remaining_seeds(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    study = run(new_study(tmp_path, seeds=[1, 2]), engine)
    states = [trial.state.name for trial in study.optuna_study.trials]
    assert "PRUNED" in states
    for point, state in enumerate(states):
        trained = {number for number in engine.started if number // 2 == point}
        assert len(trained) == 2 or state == "PRUNED"
        if state == "COMPLETE":
            values = [study.series.score(trial) for trial in study._trials_of(point)]
            assert study.optuna_study.trials[point].value == pytest.approx(sum(map(float, map(str, values))) / 2)
    skipped = [point for point, state in enumerate(states) if 2 * point + 1 not in engine.started]
    assert skipped, "no point skipped its second seed"


def test_all_trials_complete_if_pruning_is_disabled(tmp_path: Path) -> None:
    study = run(new_study(tmp_path, pruning={"enabled": False}, n_trials=4))
    assert {trial.state.name for trial in study.optuna_study.trials} == {"COMPLETE"}
    assert not study.task(study._trials_of(0)[0]).waits_for_decision


def test_study_continues_after_failed_trial(tmp_path: Path) -> None:
    engine = SimulatedEngine()
    engine.is_broken = lambda settings: settings["algorithm"]["epochs"] == 1
    study = run(new_study(tmp_path, n_trials=3), engine)
    assert study.optuna_study.trials[0].state.name == "FAIL"
    assert study.finished_count == 3
    (failed, *_) = (status for status in study.statuses if status.state == "failed")
    assert (failed.trial.point, failed.message) == (0, "it broke")


def test_extended_study_continues_where_it_ended(tmp_path: Path) -> None:
    short = run(new_study(tmp_path / "a", n_trials=3))
    long = run(extend_study(open_study(short.series.path), 5, None))
    assert outcomes(long) == outcomes(run(new_study(tmp_path / "b", n_trials=5)))
    assert open_study(short.series.path).config.n_trials == 5


def test_no_trial_starts_after_timeout(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    made = new_study(tmp_path, timeout=3)
    study = run(Study(made.series, made.config, clock=lambda: float(next(ticks))))
    assert study.finished_count == len(study.optuna_study.trials) == 2


def test_stopped_study_can_be_resumed(tmp_path: Path) -> None:
    study = new_study(tmp_path, n_trials=3)
    answers = iter([False] * 3)
    run(study, SimulatedEngine(), lambda: next(answers, True))
    assert study.finished_count == 0
    assert outcomes(run(open_study(study.series.path))) == outcomes(run(new_study(tmp_path / "b", n_trials=3)))


def test_best_config_and_plots_are_written(straight: tuple[Study, SimulatedEngine]) -> None:
    study, _ = straight
    write_ranking(study.series, rank(study.completed(), "maximize"))
    best = parse_experiment(load(study.series.path / "best.yaml")).to_settings()
    highest = max(trial.value or 0.0 for trial in study.optuna_study.trials if trial.state.name == "COMPLETE")
    assert simulated_return(best, 960) == highest
    plots = draw_study(study)
    assert [plot.name for plot in plots] == ["history.png", "importance.png"]
    assert all(plot.read_bytes()[1:4] == b"PNG" for plot in plots)
    assert max(study.optuna_study.importances().items(), key=lambda item: item[1])[0] == "algorithm.lr"
    plan = json.loads((study.series.path / "plan.json").read_bytes())["trials"]
    assert [row["changes"] for row in plan] == [study.optuna_study.changes(number) for number in range(7)]


def test_trials_with_different_rollout_sizes_are_compared_at_same_steps(tmp_path: Path) -> None:
    study = new_study(tmp_path, n_trials=2, parallel_jobs=2)
    first, second = study.next_trial(), study.next_trial()
    assert first is not None
    assert second is not None
    study.should_continue(first, 300, 1.0)
    study.should_continue(second, 384, 1.0)
    study.should_continue(second, 1024, 2.0)
    assert [list(trial.intermediate_values) for trial in study.optuna_study.trials] == [[300], [300, 960]]


def test_shipped_study_has_a_complete_start_point_and_short_trials() -> None:
    shipped = read_series_config(TuneConfig, "ppo_tune", "studies", [])
    base = read_base(shipped, Path())
    assert set(shipped.start[0]) == set(shipped.search)
    assert base.training.total_timesteps < 50_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": [{"algorithm.gamma": 1}]}, "start contains 'algorithm.gamma', which is not in search"),
        ({"start": [{"algorithm.lr": 1}]}, "start sets 'algorithm.lr' to 1, which is outside its search range"),
        ({"search": {"algorithm.lr": 0.1}}, r"search\.algorithm\.lr is 0\.1; expected a list of values"),
        (
            {"search": {"training.eval_frequency": [1, 2]}},
            "cannot be searched because trials are compared at the same steps",
        ),
        ({"search": {"experiment.seed": [1, 2]}}, "'experiment.seed' cannot be changed by a sweep or study: list"),
        ({"n_trials": 0}, r"n_trials is 0; expected a value greater than 0 \(Number of points"),
        ({"pruning": {"percentile": 101}}, r"pruning\.percentile is 101; expected a value less than or equal to 100"),
    ],
)
def test_invalid_study_file_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_config(**changes)


def test_invalid_value_is_rejected_before_any_trial_runs(tmp_path: Path) -> None:
    invalid = study_config(search={"algorithm.gamma": {"low": 0.5, "high": 1.5}}, start=[])
    with pytest.raises(ConfigError, match=r"with gamma=1.5: algorithm\.gamma is 1.5; expected a value less than"):
        create_study(tmp_path, invalid, small_config("ppo"), datetime.now())
    assert not list(tmp_path.iterdir())


def test_corrupt_study_database_is_reported(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    (study.series.path / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(RunError, match=r"the study in .*study\.db cannot be opened: .*not a database"):
        open_study(study.series.path)


def test_study_path_may_contain_special_characters(tmp_path: Path) -> None:
    study = run(new_study(tmp_path / "a ?b#c%20d", n_trials=1))
    assert (study.series.path / "study.db").is_file()
    assert open_study(study.series.path).finished_count == 1


def test_list_and_mapping_choices_round_trip(tmp_path: Path) -> None:
    choices = [{"start": 1e-3, "end": 0.0}, 1e-4]
    study = run(new_study(tmp_path, search={"algorithm.lr": choices}, start=[{"algorithm.lr": choices[0]}], n_trials=4))
    assert study.optuna_study.changes(0) == {"algorithm.lr": choices[0]}
    tried = [study.optuna_study.changes(number)["algorithm.lr"] for number in range(4)]
    assert all(value in choices for value in tried)
    assert change({}, "a.b", tried[0]) == {"a": {"b": choices[0]}}
