"""Studies, with trials that only pretend to train: what they reach follows from their settings."""

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
from rl4sys.experiment.config import parse_experiment
from rl4sys.lab.ranking import rank, write_ranking
from rl4sys.lab.series import read_base, read_settings
from rl4sys.lab.study_plots import draw_study
from rl4sys.lab.trials import Conductor, Ended, Evaluated, Event, Standing, Task
from rl4sys.lab.tune import Study, TuneConfig, create_study, lengthen, open_study

from ..conftest import small_config

SEARCH = {
    "algorithm.lr": {"low": 1e-6, "high": 1e-1, "log": True},
    "algorithm.epochs": {"low": 1, "high": 9, "integer": True},
    "network.actor.hidden_dims": [[8], [16, 16]],
}
BAD = {"algorithm.lr": 1e-6, "algorithm.epochs": 1, "network.actor.hidden_dims": [8]}
STEPS = (300, 600, 960)


def settings(**changes: Any) -> TuneConfig:
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


def reached(trained: Mapping[str, Any], step: int) -> float:
    """Best with a rate of a thousandth and many epochs; more with every step; a little of the seed."""
    rate, epochs = trained["algorithm"]["lr"], trained["algorithm"]["epochs"]
    rate = rate["start"] if isinstance(rate, dict) else rate
    return (100 - 10 * (math.log10(rate) + 3) ** 2 + epochs) * step / 960 + trained["experiment"]["seed"] / 100


class Killed(Exception):
    """The process is gone."""


class Pretending:
    """An engine whose trials write down what they would have reached, and wait to be told whether they go on."""

    def __init__(self, room: int = 1, *, backwards: bool = False, events_to_live: int | None = None) -> None:
        self.room, self._backwards, self._left = room, backwards, events_to_live
        self._trials: dict[int, list[Event]] = {}
        self._waiting: set[int] = set()
        self.started: list[int] = []
        self.steps: dict[int, int] = {}
        self.broken: Callable[[Mapping[str, Any]], bool] = lambda settings: False
        self.reached: Callable[[Mapping[str, Any], int], float] = reached

    def start(self, task: Task) -> None:
        self.started.append(task.number)
        if self.broken(task.settings):
            self._trials[task.number] = [Ended(task.number, "failed", "it broke")]
            return
        task.path.mkdir(exist_ok=True)
        self._paths = {**getattr(self, "_paths", {}), task.number: task}
        events: list[Event] = [Evaluated(task.number, step, self.reached(task.settings, step)) for step in STEPS]
        self._trials[task.number] = [*events, Ended(task.number, "completed")]

    def events(self, timeout_seconds: float) -> list[Event]:
        found = []
        for number in sorted(self._trials, reverse=self._backwards):
            if number not in self._waiting:
                found.append(self._event(number))
        return found

    def _event(self, number: int) -> Event:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed
        event = self._trials[number].pop(0)
        if isinstance(event, Ended):
            del self._trials[number]
        elif isinstance(event, Evaluated):
            self._waiting.add(number)
            self._write(self._paths[number], event.step, "running")
        return event

    def answer(self, number: int, *, go_on: bool) -> None:
        self._waiting.discard(number)
        if not go_on:
            self._trials[number] = [Ended(number, "stopped")]
        if not go_on or isinstance(self._trials[number][0], Ended):
            self._write(self._paths[number], self.steps[number], "completed" if go_on else "stopped")

    def _write(self, task: Task, step: int, status: str) -> None:
        self.steps[task.number] = step
        rows = [{"step": at, "evaluation/return": self.reached(task.settings, at)} for at in STEPS if at <= step]
        (task.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (task.path / "status.json").write_text(json.dumps({"status": status, "steps": step, "total_timesteps": 960}))

    def stop(self) -> None:
        self._trials = {number: [Ended(number, "stopped")] for number in self._trials}

    def close(self) -> None:
        pass


class Nobody:
    def show(self, standing: Standing) -> None: ...

    def tick(self) -> None: ...


def new_study(root: Path, **changes: Any) -> Study:
    return create_study(root, settings(**changes), small_config("ppo"), datetime.now())


def run(study: Study, engine: Pretending | None = None, stopping: Callable[[], bool] = lambda: False) -> Study:
    Conductor(study, engine or Pretending(), Nobody(), retries=0).conduct(stopping)
    return study


def outcomes(study: Study) -> list[tuple[Any, ...]]:
    """All there is to know of a study but the time it took."""
    return [
        (trial.number, trial.state.name, trial.params, trial.value, trial.intermediate_values)
        for trial in study.memory.trials
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Pretending]:
    engine = Pretending()
    return run(new_study(tmp_path_factory.mktemp("straight")), engine), engine


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    return outcomes(run(new_study(tmp_path_factory.mktemp("unbroken"), parallel_jobs=2), Pretending(room=2)))


def test_better_settings_are_found_than_those_it_starts_from(straight: tuple[Study, Pretending]) -> None:
    study, engine = straight
    best = rank(study.completed(), "maximize")[0]
    first = study.memory.trials[0]
    assert study.memory.changes(0) == BAD
    assert first.value is not None
    assert best.mean is not None
    assert best.mean > first.value + 50
    pruned = [trial for trial in study.memory.trials if trial.state.name == "PRUNED"]
    assert pruned, "no trial was stopped early"
    assert all(engine.steps[trial.number] == trial.last_step < 960 for trial in pruned)


def test_the_same_seed_gives_the_same_study_and_another_one_another(
    tmp_path: Path, straight: tuple[Study, Pretending]
) -> None:
    again, other = run(new_study(tmp_path)), run(new_study(tmp_path / "other", seed=2, n_trials=3))
    assert outcomes(again) == outcomes(straight[0])
    assert outcomes(other)[0] == outcomes(again)[0]
    assert outcomes(other)[1:] != outcomes(again)[1:3]


def test_which_of_several_trials_is_faster_makes_no_difference(tmp_path: Path, unbroken: list[tuple[Any, ...]]) -> None:
    assert outcomes(run(new_study(tmp_path, parallel_jobs=2), Pretending(room=2, backwards=True))) == unbroken
    assert {"COMPLETE", "PRUNED"} == {outcome[1] for outcome in unbroken}


@pytest.mark.parametrize("events", [3, 9, 16])
def test_a_study_killed_anywhere_ends_as_if_never_killed(
    tmp_path: Path, events: int, unbroken: list[tuple[Any, ...]]
) -> None:
    study = new_study(tmp_path, parallel_jobs=2)
    with pytest.raises(Killed):
        run(study, Pretending(room=2, events_to_live=events))
    done = study.finished
    assert done < 7
    engine = Pretending(room=2)
    resumed = run(open_study(study.series.path), engine)
    assert outcomes(resumed) == unbroken
    assert all(number >= done // 2 * 2 for number in engine.started), "what was done is not done again"


def points(*exponents: float) -> list[dict[str, Any]]:
    """Points to start with, by how far their rates are from the best one."""
    return [{**BAD, "algorithm.lr": 10.0**exponent} for exponent in exponents]


def test_a_kill_while_a_batch_is_told_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The third dips at the second evaluation: were it counted, the last would not be behind there.
    curves = {-1: (10, 20, 30), -2: (14, 24, 34), -3: (50, 5, 60), -4: (13, 21, 40)}
    study = new_study(tmp_path, parallel_jobs=2, n_trials=4, start=points(*curves))

    def engine() -> Pretending:
        made = Pretending(room=2)
        made.reached = lambda trained, step: curves[round(math.log10(trained["algorithm"]["lr"]))][STEPS.index(step)]
        return made

    tell = study.memory.tell

    def tell_but_the_last(number: int, *rest: Any) -> None:
        if number == 3:
            raise Killed
        tell(number, *rest)

    monkeypatch.setattr(study.memory, "tell", tell_but_the_last)
    with pytest.raises(Killed):
        run(study, engine())
    assert [study.memory.is_open(number) for number in (2, 3)] == [False, True]
    resumed = run(open_study(study.series.path), engine())
    assert [trial.state.name for trial in resumed.memory.trials] == [*["COMPLETE"] * 3, "PRUNED"]


def test_a_kill_before_a_verdict_is_given_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pruning = {"startup_trials": 2, "warmup_steps": 600}
    study = new_study(tmp_path, n_trials=3, start=points(-3, -3.1, -6), pruning=pruning)
    falls_behind = study.memory.falls_behind

    def killed_by_the_third(number: int, *rest: Any) -> bool:
        if number == 2 and study.memory.newest_step(number) == 600:
            raise Killed
        return falls_behind(number, *rest)

    monkeypatch.setattr(study.memory, "falls_behind", killed_by_the_third)
    with pytest.raises(Killed):
        run(study)
    engine = Pretending()
    resumed = run(open_study(study.series.path), engine)
    assert resumed.memory.trials[2].state.name == "PRUNED"
    assert engine.steps == {2: 600}, "not before the step that it fell behind at"


def test_a_point_that_falls_behind_with_its_first_seed_is_spared_the_others(tmp_path: Path) -> None:
    engine = Pretending()
    study = run(new_study(tmp_path, seeds=[1, 2]), engine)
    states = [trial.state.name for trial in study.memory.trials]
    assert "PRUNED" in states
    for point, state in enumerate(states):
        trained = {number for number in engine.started if number // 2 == point}
        assert len(trained) == 2 or state == "PRUNED"
        if state == "COMPLETE":
            values = [study.series.value(trial) for trial in study._trials_of(point)]
            assert study.memory.trials[point].value == pytest.approx(sum(map(float, map(str, values))) / 2)
    spared = [point for point, state in enumerate(states) if 2 * point + 1 not in engine.started]
    assert spared, "some point was to be spared its second seed"


def test_without_pruning_every_trial_is_completed(tmp_path: Path) -> None:
    study = run(new_study(tmp_path, pruning={"enabled": False}, n_trials=4))
    assert {trial.state.name for trial in study.memory.trials} == {"COMPLETE"}
    assert not study.task(study._trials_of(0)[0]).waits


def test_a_trial_that_fails_counts_and_the_search_goes_on(tmp_path: Path) -> None:
    engine = Pretending()
    engine.broken = lambda settings: settings["algorithm"]["epochs"] == 1
    study = run(new_study(tmp_path, n_trials=3), engine)
    assert study.memory.trials[0].state.name == "FAIL"
    assert study.finished == 3
    (failed, *_) = (standing for standing in study.standings if standing.status == "failed")
    assert (failed.trial.point, failed.message) == (0, "it broke")


def test_a_study_can_be_made_longer_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    short = run(new_study(tmp_path / "a", n_trials=3))
    long = run(lengthen(open_study(short.series.path), 5, None))
    assert outcomes(long) == outcomes(run(new_study(tmp_path / "b", n_trials=5)))
    assert open_study(short.series.path).settings.n_trials == 5


def test_when_time_is_up_nothing_new_is_tried(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    made = new_study(tmp_path, timeout=3)
    study = run(Study(made.series, made.settings, clock=lambda: float(next(ticks))))
    assert study.finished == len(study.memory.trials) == 2


def test_what_is_stopped_is_left_for_later(tmp_path: Path) -> None:
    study = new_study(tmp_path, n_trials=3)
    asks = iter([False] * 3)
    run(study, Pretending(), lambda: next(asks, True))
    assert study.finished == 0
    assert outcomes(run(open_study(study.series.path))) == outcomes(run(new_study(tmp_path / "b", n_trials=3)))


def test_the_best_is_a_config_to_train_and_pictures_show_how_it_was_found(straight: tuple[Study, Pretending]) -> None:
    study, _ = straight
    write_ranking(study.series, rank(study.completed(), "maximize"))
    best = parse_experiment(load(study.series.path / "best.yaml")).to_settings()
    highest = max(trial.value or 0.0 for trial in study.memory.trials if trial.state.name == "COMPLETE")
    assert reached(best, 960) == highest
    pictures = draw_study(study)
    assert [picture.name for picture in pictures] == ["history.png", "importance.png"]
    assert all(picture.read_bytes()[1:4] == b"PNG" for picture in pictures)
    assert max(study.memory.importances().items(), key=lambda item: item[1])[0] == "algorithm.lr"
    plan = json.loads((study.series.path / "plan.json").read_bytes())["trials"]
    assert [row["changes"] for row in plan] == [study.memory.changes(number) for number in range(7)]


def test_rounds_of_any_size_are_judged_at_the_same_steps(tmp_path: Path) -> None:
    study = new_study(tmp_path, n_trials=2, parallel_jobs=2)
    first, second = study.next(), study.next()
    assert first is not None
    assert second is not None
    study.judge(first, 300, 1.0)
    study.judge(second, 384, 1.0)
    study.judge(second, 1024, 2.0)
    assert [list(trial.intermediate_values) for trial in study.memory.trials] == [[300], [300, 960]]


def test_the_shipped_study_starts_from_bad_settings_within_what_it_searches() -> None:
    shipped = read_settings(TuneConfig, "ppo_tune", "studies", [])
    base = read_base(shipped, Path())
    assert set(shipped.start[0]) == set(shipped.search)
    assert base.training.total_timesteps < 50_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": [{"algorithm.gamma": 1}]}, "start has algorithm.gamma, which is not under search"),
        ({"start": [{"algorithm.lr": 1}]}, "start has algorithm.lr: 1, which is not within what is searched"),
        ({"search": {"algorithm.lr": 0.1}}, r"search\.algorithm\.lr is 0\.1; it should be a list of values"),
        ({"search": {"training.eval_frequency": [1, 2]}}, "cannot be searched: trials are compared at the same steps"),
        ({"search": {"experiment.seed": [1, 2]}}, "experiment.seed is not to be changed here: give the seeds as"),
        ({"n_trials": 0}, r"n_trials is 0; it should be greater than 0 \(How many points"),
        ({"pruning": {"percentile": 101}}, r"pruning\.percentile is 101; it should be less than or equal to 100"),
    ],
)
def test_mistakes_in_the_file_are_explained(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_a_value_that_no_trial_could_have_is_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong = settings(search={"algorithm.gamma": {"low": 0.5, "high": 1.5}}, start=[])
    with pytest.raises(ConfigError, match=r"with gamma=1.5: algorithm\.gamma is 1.5; it should be less than"):
        create_study(tmp_path, wrong, small_config("ppo"), datetime.now())
    assert not list(tmp_path.iterdir())


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    (study.series.path / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(RunError, match=r"the study in .*study\.db cannot be opened: .*not a database"):
        open_study(study.series.path)


def test_a_place_with_odd_letters_in_its_name_is_a_place(tmp_path: Path) -> None:
    study = run(new_study(tmp_path / "a ?b#c%20d", n_trials=1))
    assert (study.series.path / "study.db").is_file()
    assert open_study(study.series.path).finished == 1


def test_choices_that_are_lists_or_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    choices = [{"start": 1e-3, "end": 0.0}, 1e-4]
    study = run(new_study(tmp_path, search={"algorithm.lr": choices}, start=[{"algorithm.lr": choices[0]}], n_trials=4))
    assert study.memory.changes(0) == {"algorithm.lr": choices[0]}
    tried = [study.memory.changes(number)["algorithm.lr"] for number in range(4)]
    assert all(value in choices for value in tried)
    assert change({}, "a.b", tried[0]) == {"a": {"b": choices[0]}}
