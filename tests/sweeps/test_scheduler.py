"""Trial scheduler with a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rl4sys.sweeps.scheduler import TrialScheduler
from rl4sys.sweeps.trials import Ended, Evaluated, Event, Progressed, Trial, TrialStatus, TrialTask, decode, encode

TRIALS = [Trial(number, number, 1, {"algorithm.lr": number}) for number in range(4)]


class ScriptedEngine:
    """Engine whose trials emit scripted events, one list per attempt."""

    def __init__(self, capacity: int, **attempts: list[list[Event]]) -> None:
        self.capacity = capacity
        self._attempts = {int(name.removeprefix("t")): list(script) for name, script in attempts.items()}
        self._pending: dict[int, list[Event]] = {}
        self.max_parallel = 0
        self.decisions: list[tuple[int, bool]] = []
        self.stopped = self.closed = False

    def start(self, task: TrialTask) -> None:
        attempts = self._attempts.get(task.number)
        self._pending[task.number] = list(attempts.pop(0)) if attempts else [Ended(task.number, "completed")]
        self.max_parallel = max(self.max_parallel, len(self._pending))

    def events(self, timeout_seconds: float) -> list[Event]:
        events = [self._pending[number].pop(0) for number in list(self._pending)]
        for event in events:
            if isinstance(event, Ended):
                del self._pending[event.number]
        return events

    def send_decision(self, number: int, *, proceed: bool) -> None:
        self.decisions.append((number, proceed))

    def stop(self) -> None:
        self.stopped = True
        self._pending = {number: [Ended(number, "stopped")] for number in self._pending}

    def close(self) -> None:
        self.closed = True


class ListSource:
    """Trial source with a fixed list of trials; prunes trials with values below `min_value`."""

    def __init__(self, min_value: float = 0.0) -> None:
        self._remaining = list(TRIALS)
        self._min_value = min_value
        self.ended: dict[int, TrialStatus] = {}

    def next_trial(self) -> Trial | None:
        return self._remaining.pop(0) if self._remaining else None

    def task(self, trial: Trial) -> TrialTask:
        return TrialTask(trial.number, Path(trial.directory), {}, "evaluation/return", waits_for_decision=True)

    def should_continue(self, trial: Trial, step: int, value: float) -> bool:
        return value >= self._min_value

    def on_trial_ended(self, status: TrialStatus) -> None:
        self.ended[status.trial.number] = status


class RecordingObserver:
    def __init__(self) -> None:
        self.statuses: list[TrialStatus] = []

    def show(self, status: TrialStatus) -> None:
        self.statuses.append(status)

    def tick(self) -> None:
        pass


def run_trials(
    engine: ScriptedEngine, source: ListSource, stopping: Callable[[], bool] = lambda: False, retries: int = 1
) -> dict[int, str]:
    TrialScheduler(source, engine, RecordingObserver(), retries).run(stopping)
    assert engine.closed
    return {number: status.state for number, status in source.ended.items()}


def test_trials_run_in_parallel_up_to_engine_capacity() -> None:
    engine = ScriptedEngine(capacity=3)
    assert run_trials(engine, ListSource()) == dict.fromkeys(range(4), "completed")
    assert engine.max_parallel == 3


def test_failed_trial_does_not_stop_remaining_trials() -> None:
    source = ListSource()
    states = run_trials(ScriptedEngine(1, t1=[[Ended(1, "failed", "it broke")]]), source)
    assert states == {0: "completed", 1: "failed", 2: "completed", 3: "completed"}
    assert source.ended[1].message == "it broke"


def test_trial_with_dead_process_is_restarted_up_to_the_retry_limit() -> None:
    death, end = [Ended(2, "died", "killed")], [Ended(2, "completed")]
    assert run_trials(ScriptedEngine(1, t2=[death, death, end]), ListSource(), retries=2)[2] == "completed"
    assert run_trials(ScriptedEngine(1, t2=[death, death, end]), ListSource(), retries=1)[2] == "failed"


def test_trial_restart_is_shown_to_observer() -> None:
    observer = RecordingObserver()
    attempts: list[list[Event]] = [[Ended(0, "died", "killed")]]
    TrialScheduler(ListSource(), ScriptedEngine(1, t0=attempts), observer, 1).run(lambda: False)
    assert "killed; restarting from its checkpoint" in [status.message for status in observer.statuses]


def test_decision_is_sent_after_each_evaluation() -> None:
    script: list[Event] = [
        Progressed(3, 10, 99, 5.0),
        Evaluated(3, 10, 5.0),
        Evaluated(3, 20, 1.0),
        Ended(3, "stopped"),
    ]
    engine, source = ScriptedEngine(1, t3=[script]), ListSource(min_value=2.0)
    assert run_trials(engine, source)[3] == "pruned"
    assert engine.decisions == [(3, True), (3, False)]
    assert (source.ended[3].steps, source.ended[3].value) == (10, 5.0)


def test_stop_request_stops_running_trials_and_starts_no_new_trials() -> None:
    engine = ScriptedEngine(2, t0=[[Progressed(0, 1, 9, None)] * 3], t1=[[Progressed(1, 1, 9, None)] * 3])
    answers = iter([False, False, False])
    assert run_trials(engine, ListSource(), lambda: next(answers, True)) == {}
    assert engine.stopped
    assert engine.max_parallel == 2


def test_events_round_trip_through_encoding() -> None:
    for event in (Progressed(1, 2, 3, None), Evaluated(1, 2, 0.1), Ended(1, "died", "“reason”")):
        assert decode(encode(event)) == event
