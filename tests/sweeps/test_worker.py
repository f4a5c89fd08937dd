"""Training, reporting and failures of one trial. The trial runs inside the test process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.errors import RunError
from rl4sys.runs.directory import RunDirectory
from rl4sys.runs.run import Run
from rl4sys.sweeps.series import record_failure
from rl4sys.sweeps.trials import Evaluated, Event, Progressed, TrialTask
from rl4sys.sweeps.worker import EngineLink, evaluations, train_trial
from rl4sys.workers.frames import Frame, Pipe

from ..conftest import small_config


class RecordedLink:
    """Engine link that records events and returns decisions from a list, then True."""

    def __init__(self, decisions: list[bool]) -> None:
        self.events: list[Event] = []
        self._decisions = decisions

    def send(self, event: Event) -> None:
        self.events.append(event)

    def wait_for_decision(self) -> bool:
        return self._decisions.pop(0) if self._decisions else True

    def on_stop(self, stop: Callable[[], None]) -> None:
        pass

    @property
    def steps(self) -> list[int]:
        return [event.step for event in self.events if isinstance(event, Evaluated)]


def task(path: Path, **changes: Any) -> TrialTask:
    settings = small_config("ppo").to_settings()
    defaults = {"number": 7, "path": path, "settings": settings, "metric": "evaluation/return"}
    return TrialTask(**{**defaults, "waits_for_decision": True, **changes})


def train(trial: TrialTask, *decisions: bool) -> tuple[bool, RecordedLink]:
    link: Any = RecordedLink(list(decisions))
    return train_trial(trial, link), link


def test_pruned_trial_is_saved_and_resumes_bit_exactly(tmp_path: Path) -> None:
    finished, first = train(task(tmp_path / "a"), True, False)
    assert (finished, first.steps) == (False, [384, 672])
    assert Run.open(tmp_path / "a").checkpoints.resolve("latest") == "step_000000000672"
    finished, second = train(task(tmp_path / "a"))
    assert (finished, second.steps) == (True, [384, 672, 960]), "earlier evaluations are sent again"
    _, straight = train(task(tmp_path / "b"))
    assert second.steps == straight.steps
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    newest = [event.value for event in straight.events if isinstance(event, Progressed)][-1]
    assert newest == evaluations(RunDirectory(tmp_path / "b"), "evaluation/return")[-1][1]


def test_resumed_trial_pruned_at_an_earlier_evaluation_trains_no_step(tmp_path: Path) -> None:
    train(task(tmp_path), True, False)
    finished, again = train(task(tmp_path), True, False)
    assert (finished, again.steps) == (False, [384, 672])
    assert json.loads((tmp_path / "status.json").read_bytes())["steps"] == 672


def test_evaluations_report_newest_value_of_the_given_metric(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 5.0}, {"step": 2, "evaluation/return": 1.0}, {"step": 2, "loss": 4.0}]
    rows += [{"step": 3, "loss": 3.0}, {"step": 4, "evaluation/return": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert evaluations(RunDirectory(tmp_path), "loss") == [(2, 4.0), (4, 3.0)]
    assert evaluations(RunDirectory(tmp_path), "nothing") == []
    assert evaluations(RunDirectory(tmp_path / "absent"), "loss") == []


def test_trial_locked_by_another_process_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.sweeps.worker._LOCK_SECONDS", 0.0)
    held = Run.create_at(tmp_path, small_config("ppo"), datetime.now())
    with held.locked(), pytest.raises(RunError, match="is being trained by another process"):
        train(task(tmp_path))


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Replace `os.kill`; the returned function waits for a call and returns its process id and signal number."""
    reader, writer = os.pipe()
    monkeypatch.setattr(os, "kill", lambda pid, number: os.write(writer, f"{pid} {int(number)}".encode()))
    yield lambda: os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)


def test_engine_link_delivers_messages_and_kills_orphaned_process(killed: Callable[[], str]) -> None:
    parent_end, child_end = socket.socketpair()
    engine, link = Pipe(parent_end), EngineLink(Pipe(child_end))
    engine.send(Frame("decision", {"proceed": True}))
    assert link.wait_for_decision()
    engine.send(Frame("stop", {}))
    assert not link.wait_for_decision(), "a stop request also ends the wait for a decision"
    asked: list[bool] = []
    link.on_stop(lambda: asked.append(True))
    assert asked == [True]
    link.send(Progressed(1, 2, 3, None))
    assert b"Progressed" in engine.receive().content
    engine.close()
    assert killed() == f"{os.getpid()} 9"
    child_end.close()


def test_failure_is_recorded_only_in_an_existing_run(tmp_path: Path) -> None:
    record_failure(tmp_path, "broken")
    assert not (tmp_path / "status.json").exists()
