"""What a trial is, and how many of them are gone through; who runs them is an `Engine`'s affair.

A trial is one run of a sweep or of a study. It is named by its number, which also names its run directory, and is all
in its `Task`: plain settings and a place. So whoever can run a task can run trials: processes of this machine do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from rl4sys.config import Settings

Status: TypeAlias = Literal["waiting", "running", "completed", "stopped", "pruned", "failed"]

EVALUATION = "evaluation/return"
"""The metric that every evaluation gives; users call it reward."""

OUTPUT = "output.log"
"""In a trial's directory: what its process printed."""

_EVENTS_SECONDS = 0.2


@dataclass(frozen=True)
class Trial:
    """One run of a series: a point (what was changed) with a seed."""

    number: int
    point: int
    seed: int
    changes: Mapping[str, Any]
    """Settings by their dotted names."""

    @property
    def directory(self) -> str:
        return f"trial_{self.number:03d}"


@dataclass(frozen=True)
class Task:
    """All that is needed to run a trial, or to go on with it, anywhere that its directory can be seen."""

    number: int
    path: Path
    settings: Settings
    metric: str
    waits: bool
    """Whether it goes on after an evaluation only when it is told to."""


@dataclass(frozen=True)
class Moved:
    """A trial got so far; ``value`` is the newest of its metric."""

    number: int
    steps: int
    total_timesteps: int
    value: float | None


@dataclass(frozen=True)
class Evaluated:
    """A trial was evaluated; one that was taken up again tells of all its evaluations."""

    number: int
    step: int
    value: float


@dataclass(frozen=True)
class Ended:
    """A trial is no longer run."""

    number: int
    how: Literal["completed", "stopped", "failed", "died"]
    """Died: its process went without a word."""
    message: str = ""


Event: TypeAlias = Moved | Evaluated | Ended


def encode(event: Event) -> bytes:
    return json.dumps({"kind": type(event).__name__, **asdict(event)}).encode()


def decode(message: bytes) -> Event:
    fields: dict[str, Any] = json.loads(message)
    kinds: dict[str, type[Event]] = {"Moved": Moved, "Evaluated": Evaluated, "Ended": Ended}
    return kinds[fields.pop("kind")](**fields)


class Engine(Protocol):
    """Runs tasks somewhere, several at once."""

    room: int
    """How many at once."""

    def start(self, task: Task) -> None: ...

    def events(self, timeout_seconds: float) -> list[Event]:
        """What happened since the last call, waiting for something to happen."""

    def answer(self, number: int, *, go_on: bool) -> None:
        """Tell a trial that waits after its evaluation."""

    def stop(self) -> None:
        """Ask all to save and end."""

    def close(self) -> None:
        """End whatever still runs."""


@dataclass(frozen=True)
class Standing:
    """Where a trial stands."""

    trial: Trial
    status: Status = "waiting"
    steps: int = 0
    total_timesteps: int = 0
    value: float | None = None
    message: str = ""


class Campaign(Protocol):
    """Decides which trials there are to run: a sweep, or a study."""

    def next(self) -> Trial | None:
        """One to start now; None while there is none."""

    def task(self, trial: Trial) -> Task: ...

    def judge(self, trial: Trial, step: int, value: float) -> bool:
        """Whether a trial goes on after an evaluation."""

    def ended(self, standing: Standing) -> None:
        """A trial that `next` gave is completed, pruned or failed."""


class Watcher(Protocol):
    """Whoever looks on, such as the terminal."""

    def show(self, standing: Standing) -> None: ...

    def tick(self) -> None:
        """Called several times a second."""


@dataclass
class _Running:
    standing: Standing
    tries: int = 1
    pruned: bool = False


@dataclass
class Conductor:
    """Starts what a campaign has to run wherever the engine has room, until there is nothing left."""

    campaign: Campaign
    engine: Engine
    watcher: Watcher
    retries: int
    """How often a trial whose process died is taken up again."""
    _running: dict[int, _Running] = field(default_factory=dict)

    def conduct(self, stopping: Callable[[], bool]) -> None:
        """Until all is done, or those running when it was asked to stop have saved and ended."""
        told = False
        try:
            while self._start_what_fits(stopping) or self._running:
                if stopping() and not told:
                    told = True
                    self.engine.stop()
                for event in self.engine.events(_EVENTS_SECONDS):
                    self._take(event, stopping())
                self.watcher.tick()
        finally:
            self.engine.close()

    def _start_what_fits(self, stopping: Callable[[], bool]) -> bool:
        """Whether anything was started."""
        started = False
        while len(self._running) < self.engine.room and not stopping():
            trial = self.campaign.next()
            if trial is None:
                break
            self._running[trial.number] = _Running(Standing(trial, "running"))
            self._start(trial)
            started = True
        return started

    def _start(self, trial: Trial) -> None:
        self.engine.start(self.campaign.task(trial))
        self.watcher.show(self._running[trial.number].standing)

    def _take(self, event: Event, stopping: bool) -> None:
        running = self._running[event.number]
        if isinstance(event, Moved):
            self._update(running, steps=event.steps, total_timesteps=event.total_timesteps, value=event.value)
        elif isinstance(event, Evaluated):
            go_on = self.campaign.judge(running.standing.trial, event.step, event.value)
            running.pruned = not go_on
            self.engine.answer(event.number, go_on=go_on)
        elif event.how == "died" and running.tries <= self.retries and not stopping:
            running.tries += 1
            self._update(running, message=f"{event.message}; it is taken up again from its checkpoint")
            self._start(running.standing.trial)
        else:
            self._end(running, event)

    def _end(self, running: _Running, event: Ended) -> None:
        self._update(running, status=_status(event, pruned=running.pruned), message=event.message)
        del self._running[event.number]
        if running.standing.status != "stopped":
            self.campaign.ended(running.standing)

    def _update(self, running: _Running, **changes: Any) -> None:
        running.standing = replace(running.standing, **changes)
        self.watcher.show(running.standing)


def _status(event: Ended, *, pruned: bool) -> Status:
    if event.how == "died":
        return "failed"
    return "pruned" if event.how == "stopped" and pruned else event.how
