"""Judges a run by its alert rules while it trains, and tells whoever is to be told."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rl4sys.errors import NumericalError
from rl4sys.experiment.alertbook import FILE, Alertbook
from rl4sys.experiment.alerts import AlertSettings, MemoryRule, NoProgressRule
from rl4sys.experiment.conditions import Alert, Seen, Standing
from rl4sys.experiment.delivery import Delivery
from rl4sys.experiment.machine import Memory, measure_memory
from rl4sys.spec import State

_MEMORY_SECONDS = 5.0
_LONGEST_NAP_SECONDS = 5.0


@dataclass(frozen=True)
class Subject:
    """The run that is watched, as alerts describe it."""

    path: Path
    facts: Mapping[str, Any]
    """Its name, algorithm, environment and seed."""
    needed: Callable[[int], int]
    """Bytes of memory that its buffer will still take after so many steps."""
    advice: Callable[[int], str]
    """What to do where so many bytes of memory are left."""


class Watch:
    """Alerts change nothing that is learnt: rules read rows and clocks, and are read by nobody but people.

    All methods are for the thread that trains. Rules about silence are judged by a thread of their own, unless the
    host looks by itself.
    """

    def __init__(
        self,
        settings: AlertSettings,
        subject: Subject,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        rules = settings.in_force()
        silences = {name: rule for name, rule in rules.items() if isinstance(rule, NoProgressRule)}
        self._of_rows = [Standing(name, rule) for name, rule in rules.items() if name not in silences]
        self._of_silence = [Standing(name, rule) for name, rule in silences.items()]
        self._nap_seconds = min([_LONGEST_NAP_SECONDS, *(rule.seconds / 4 for rule in silences.values())])
        self._measures_memory = any(isinstance(rule, MemoryRule) for rule in rules.values())
        self._subject, self._note, self._clock = subject, note, clock
        self._delivery = Delivery(settings)
        self._book = Alertbook(subject.path / FILE)
        self._memory: Memory | None = None
        self._measured_at = -math.inf
        self._row_at = clock()
        self._step = 0

    @contextmanager
    def opened(self, *, alone: bool) -> Iterator[None]:
        """While the run trains; ``alone`` if nobody calls `look` when no row comes."""
        self._row_at = self._clock()
        done = threading.Event()
        watchdog = threading.Thread(target=self._watch_silence, args=(done,), name="rl4sys watchdog", daemon=True)
        if alone and self._of_silence:
            watchdog.start()
        try:
            yield
        finally:
            done.set()
            self._delivery.close()
            self._tell_problems()

    def see(self, step: int, row: Mapping[str, float]) -> None:
        """Judge a row of metrics."""
        now = self._clock()
        self._row_at, self._step = now, step
        memory = self._measure(now)
        seen = Seen(step, now, row, memory, self._subject.needed(step) if memory else 0, silent_seconds=0.0)
        self._judge(self._of_rows, seen)

    def look(self, step: int, clients: Mapping[str, float]) -> None:
        """Judge what can be judged without a row."""
        now = self._clock()
        seen = Seen(step, now, silent_seconds=now - self._row_at, clients=clients)
        self._judge([*self._of_rows, *self._of_silence], seen)

    def fail(self, step: int, problem: BaseException) -> None:
        """The run ends with an error."""
        if isinstance(problem, Exception):
            numerical = isinstance(problem, NumericalError)
            words = str(problem) or type(problem).__name__
            self._judge(self._of_rows, Seen(step, self._clock(), problem=words, numerical=numerical))

    def active(self) -> list[str]:
        """What is the matter now, a line each."""
        standings = [*self._of_rows, *self._of_silence]
        return [f"{standing.name}: {standing.message}" for standing in standings if standing.message]

    def state(self) -> State:
        states = {standing.name: standing.state() for standing in self._of_rows}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: State) -> None:
        """Rules that there were already go on from where they were."""
        for standing in self._of_rows:
            if standing.name in state:
                standing.restore(state[standing.name])

    def _judge(self, standings: list[Standing], seen: Seen) -> None:
        for standing in standings:
            alert = standing.judge(seen)
            if alert is not None:
                self._tell(standing, alert)
        self._tell_problems()

    def _tell(self, standing: Standing, alert: Alert) -> None:
        record = describe(alert, self._subject, self._advice(alert))
        try:
            if not self._book.write(record):
                return
        except OSError as problem:
            # It may be what the alert is about.
            self._note(f"cannot write to {self._book.path}: {problem.strerror}")
        self._note(f"alert {alert.rule} has cleared" if alert.cleared else f"alert {alert.rule}: {record['message']}")
        if standing.rule.send and not alert.cleared:
            self._delivery.send(record)

    def _advice(self, alert: Alert) -> str:
        left = self._memory.left_bytes if self._memory else None
        return self._subject.advice(left) if alert.kind == "memory" and left is not None and not alert.cleared else ""

    def _measure(self, now: float) -> Memory | None:
        """Now and then: it is a handful of files to read."""
        if not self._measures_memory or now - self._measured_at < _MEMORY_SECONDS:
            return None
        self._measured_at, self._memory = now, measure_memory()
        return self._memory

    def _tell_problems(self) -> None:
        for problem in self._delivery.problems():
            self._note(problem)

    def _watch_silence(self, done: threading.Event) -> None:
        while not done.wait(self._nap_seconds):
            now = self._clock()
            self._judge(self._of_silence, Seen(self._step, now, silent_seconds=now - self._row_at))


def describe(alert: Alert, subject: Subject, advice: str = "") -> dict[str, Any]:
    """An alert as it is written and sent: plain JSON, with a ``text`` such as chats show."""
    message = f"{alert.message}; {advice}" if advice else alert.message
    finite = alert.value is None or math.isfinite(alert.value)
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "rule": alert.rule,
        "kind": alert.kind,
        "status": "cleared" if alert.cleared else "firing",
        "step": alert.step,
        "message": message,
        "value": alert.value if finite else str(alert.value),
        "run": str(subject.path.resolve()),
        **subject.facts,
        "host": socket.gethostname(),
        "text": f"{subject.path.name}: {alert.rule}: {message} (step {alert.step:,})",
    }
