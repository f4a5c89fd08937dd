"""What a trial tells of itself, in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from rl4sys.errors import RunError
from rl4sys.experiment.run import Run
from rl4sys.lab.series import note_failure
from rl4sys.lab.trials import Evaluated, Event, Moved, Task
from rl4sys.lab.worker import Line, evaluations, train_trial

from ..conftest import small_config


class Told:
    """A line that remembers what was told, and answers as it was made to."""

    def __init__(self, verdicts: list[bool]) -> None:
        self.events: list[Event] = []
        self._verdicts = verdicts

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def verdict(self) -> bool:
        return self._verdicts.pop(0) if self._verdicts else True

    def on_stop(self, stop: Callable[[], None]) -> None:
        pass

    @property
    def steps(self) -> list[int]:
        return [event.step for event in self.events if isinstance(event, Evaluated)]


def task(path: Path, **changes: Any) -> Task:
    settings = small_config("ppo").to_settings()
    return Task(
        **{"number": 7, "path": path, "settings": settings, "metric": "evaluation/return", "waits": True} | changes
    )


def train(trial: Task, *verdicts: bool) -> tuple[bool, Told]:
    line: Any = Told(list(verdicts))
    return train_trial(trial, line), line


def test_a_trial_stopped_by_a_verdict_is_saved_there_and_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    finished, first = train(task(tmp_path / "a"), True, False)
    assert (finished, first.steps) == (False, [384, 672])
    assert Run.open(tmp_path / "a").checkpoints.resolve("latest") == "step_000000000672"
    finished, second = train(task(tmp_path / "a"))
    assert (finished, second.steps) == (True, [384, 672, 960]), "who asks now may have heard of none"
    _, straight = train(task(tmp_path / "b"))
    assert second.steps == straight.steps
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    newest = [event.value for event in straight.events if isinstance(event, Moved)][-1]
    assert newest == evaluations(tmp_path / "b/metrics.jsonl", "evaluation/return")[-1][1]


def test_a_verdict_on_what_is_past_stops_a_trial_that_is_taken_up_before_its_first_step(tmp_path: Path) -> None:
    train(task(tmp_path), True, False)
    finished, again = train(task(tmp_path), True, False)
    assert (finished, again.steps) == (False, [384, 672])
    assert json.loads((tmp_path / "status.json").read_bytes())["steps"] == 672


def test_evaluations_have_the_newest_value_of_any_metric(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 5.0}, {"step": 2, "evaluation/return": 1.0}, {"step": 2, "loss": 4.0}]
    rows += [{"step": 3, "loss": 3.0}, {"step": 4, "evaluation/return": 2.0}]
    (tmp_path / "m").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert evaluations(tmp_path / "m", "loss") == [(2, 4.0), (4, 3.0)]
    assert evaluations(tmp_path / "m", "nothing") == []
    assert evaluations(tmp_path / "absent", "loss") == []


def test_a_trial_that_another_process_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.lab.worker._LOCK_SECONDS", 0.0)
    held = Run.create_at(tmp_path, small_config("ppo"), datetime.now())
    with held.locked(), pytest.raises(RunError, match="is being trained by another process"):
        train(task(tmp_path))


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Which process is killed and how, once one is; none really is."""
    reader, writer = os.pipe()
    monkeypatch.setattr(os, "kill", lambda pid, number: os.write(writer, f"{pid} {int(number)}".encode()))
    yield lambda: os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)


def test_a_line_passes_on_verdicts_and_a_wish_to_stop_and_ends_the_process_with_its_other_end(
    killed: Callable[[], str],
) -> None:
    ours, theirs = Pipe()
    line = Line(theirs)
    ours.send_bytes(b'{"go_on": true}')
    assert line.verdict()
    ours.send_bytes(b'{"stop": true}')
    assert not line.verdict(), "who waits for a verdict is to stop too"
    asked: list[bool] = []
    line.on_stop(lambda: asked.append(True))
    assert asked == [True]
    line.tell(Moved(1, 2, 3, None))
    assert b"Moved" in ours.recv_bytes()
    ours.close()
    assert killed() == f"{os.getpid()} 9"


def test_a_failure_is_noted_in_a_run_and_nowhere_else(tmp_path: Path) -> None:
    note_failure(tmp_path, "broken")
    assert not (tmp_path / "status.json").exists()
