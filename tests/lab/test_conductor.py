"""Going through trials, with an engine that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rl4sys.lab.trials import Conductor, Ended, Evaluated, Event, Moved, Standing, Task, Trial, decode, encode

TRIALS = [Trial(number, number, 1, {"algorithm.lr": number}) for number in range(4)]


class Scripted:
    """An engine whose trials go by what was written down for each of their lives."""

    def __init__(self, room: int, **lives: list[list[Event]]) -> None:
        self.room = room
        self._lives = {int(name.removeprefix("t")): list(script) for name, script in lives.items()}
        self._pending: dict[int, list[Event]] = {}
        self.most_at_once = 0
        self.answers: list[tuple[int, bool]] = []
        self.stopped = self.closed = False

    def start(self, task: Task) -> None:
        lives = self._lives.get(task.number)
        self._pending[task.number] = list(lives.pop(0)) if lives else [Ended(task.number, "completed")]
        self.most_at_once = max(self.most_at_once, len(self._pending))

    def events(self, timeout_seconds: float) -> list[Event]:
        events = [self._pending[number].pop(0) for number in list(self._pending)]
        for event in events:
            if isinstance(event, Ended):
                del self._pending[event.number]
        return events

    def answer(self, number: int, *, go_on: bool) -> None:
        self.answers.append((number, go_on))

    def stop(self) -> None:
        self.stopped = True
        self._pending = {number: [Ended(number, "stopped")] for number in self._pending}

    def close(self) -> None:
        self.closed = True


class Listed:
    """A campaign of a list of trials, which stops those that fall below a value."""

    def __init__(self, at_least: float = 0.0) -> None:
        self._left = list(TRIALS)
        self._at_least = at_least
        self.ends: dict[int, Standing] = {}

    def next(self) -> Trial | None:
        return self._left.pop(0) if self._left else None

    def task(self, trial: Trial) -> Task:
        return Task(trial.number, Path(trial.directory), {}, "evaluation/return", waits=True)

    def judge(self, trial: Trial, step: int, value: float) -> bool:
        return value >= self._at_least

    def ended(self, standing: Standing) -> None:
        self.ends[standing.trial.number] = standing


class Seen:
    def __init__(self) -> None:
        self.standings: list[Standing] = []

    def show(self, standing: Standing) -> None:
        self.standings.append(standing)

    def tick(self) -> None:
        pass


def conduct(
    engine: Scripted, campaign: Listed, stopping: Callable[[], bool] = lambda: False, retries: int = 1
) -> dict[int, str]:
    Conductor(campaign, engine, Seen(), retries).conduct(stopping)
    assert engine.closed
    return {number: standing.status for number, standing in campaign.ends.items()}


def test_all_trials_are_run_as_many_at_once_as_there_is_room_for() -> None:
    engine = Scripted(room=3)
    assert conduct(engine, Listed()) == dict.fromkeys(range(4), "completed")
    assert engine.most_at_once == 3


def test_a_trial_that_fails_does_not_stop_the_rest() -> None:
    campaign = Listed()
    ends = conduct(Scripted(1, t1=[[Ended(1, "failed", "it broke")]]), campaign)
    assert ends == {0: "completed", 1: "failed", 2: "completed", 3: "completed"}
    assert campaign.ends[1].message == "it broke"


def test_a_trial_whose_process_died_is_taken_up_again_so_often_and_no_more() -> None:
    death, end = [Ended(2, "died", "killed")], [Ended(2, "completed")]
    assert conduct(Scripted(1, t2=[death, death, end]), Listed(), retries=2)[2] == "completed"
    assert conduct(Scripted(1, t2=[death, death, end]), Listed(), retries=1)[2] == "failed"


def test_it_is_told_that_a_trial_is_taken_up_again() -> None:
    seen = Seen()
    lives: list[list[Event]] = [[Ended(0, "died", "killed")]]
    Conductor(Listed(), Scripted(1, t0=lives), seen, 1).conduct(lambda: False)
    assert "killed; it is taken up again from its checkpoint" in [standing.message for standing in seen.standings]


def test_a_trial_is_told_after_each_evaluation_whether_it_goes_on() -> None:
    script: list[Event] = [Moved(3, 10, 99, 5.0), Evaluated(3, 10, 5.0), Evaluated(3, 20, 1.0), Ended(3, "stopped")]
    engine, campaign = Scripted(1, t3=[script]), Listed(at_least=2.0)
    assert conduct(engine, campaign)[3] == "pruned"
    assert engine.answers == [(3, True), (3, False)]
    assert (campaign.ends[3].steps, campaign.ends[3].value) == (10, 5.0)


def test_when_asked_to_stop_nothing_begins_and_what_runs_is_left_for_later() -> None:
    engine = Scripted(2, t0=[[Moved(0, 1, 9, None)] * 3], t1=[[Moved(1, 1, 9, None)] * 3])
    asks = iter([False, False, False])
    assert conduct(engine, Listed(), lambda: next(asks, True)) == {}
    assert engine.stopped
    assert engine.most_at_once == 2


def test_what_a_trial_says_arrives_as_it_was_said() -> None:
    for event in (Moved(1, 2, 3, None), Evaluated(1, 2, 0.1), Ended(1, "died", "“why”")):
        assert decode(encode(event)) == event
