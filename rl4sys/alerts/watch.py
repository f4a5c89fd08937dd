"""Evaluation of the alert rules of a run during training, and delivery of its alerts."""

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

from rl4sys.alerts.conditions import Alert, RuleInput, RuleState
from rl4sys.alerts.delivery import Delivery
from rl4sys.alerts.log import FILE, AlertLog
from rl4sys.alerts.rules import AlertConfig, MemoryRule, NoProgressRule
from rl4sys.errors import NumericalError
from rl4sys.machine import MemoryUsage, measure_memory_usage
from rl4sys.spec import State

_MEMORY_SECONDS = 5.0
_MAX_POLL_SECONDS = 5.0


@dataclass(frozen=True)
class WatchedRun:
    """Run whose alert rules are evaluated, with the data for its alerts."""

    path: Path
    facts: Mapping[str, Any]
    """Name, algorithm, environment and seed of the run, which each alert includes."""
    needed: Callable[[int], int]
    """Function that returns the bytes of RAM that the buffer will still allocate, given the number of steps so far."""
    advice: Callable[[int], str]
    """Function that returns the advice in a memory alert, given the free RAM in bytes."""


class Watch:
    """Evaluator of the alert rules of a run. Alerts have no effect on training.

    Call all methods from the training thread. A watchdog thread checks the no_progress rules, unless the host calls
    `check_clients` itself.
    """

    def __init__(
        self,
        config: AlertConfig,
        run: WatchedRun,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        rules = config.active_rules()
        no_progress = {name: rule for name, rule in rules.items() if isinstance(rule, NoProgressRule)}
        self._row_rules = [RuleState(name, rule) for name, rule in rules.items() if name not in no_progress]
        self._progress_rules = [RuleState(name, rule) for name, rule in no_progress.items()]
        self._poll_seconds = min([_MAX_POLL_SECONDS, *(rule.seconds / 4 for rule in no_progress.values())])
        self._measures_memory = any(isinstance(rule, MemoryRule) for rule in rules.values())
        self._run, self._note, self._clock = run, note, clock
        self._delivery = Delivery(config)
        self._log = AlertLog(run.path / FILE)
        self._memory: MemoryUsage | None = None
        self._measured_at = -math.inf
        self._row_at = clock()
        self._step = 0

    @contextmanager
    def opened(self, *, watchdog: bool) -> Iterator[None]:
        """Context in which alert rules are evaluated. Its end waits for delivery. ``watchdog`` starts the thread."""
        self._row_at = self._clock()
        done = threading.Event()
        thread = threading.Thread(target=self._run_watchdog, args=(done,), name="rl4sys watchdog", daemon=True)
        if watchdog and self._progress_rules:
            thread.start()
        try:
            yield
        finally:
            done.set()
            self._delivery.close()
            self._report_delivery_errors()

    def check_row(self, step: int, row: Mapping[str, float]) -> None:
        """Evaluate the alert rules on a new metrics row."""
        now = self._clock()
        self._row_at, self._step = now, step
        memory = self._measure(now)
        inputs = RuleInput(step, now, row, memory, self._run.needed(step) if memory else 0, silent_seconds=0.0)
        self._check(self._row_rules, inputs)

    def check_clients(self, step: int, clients: Mapping[str, float]) -> None:
        """Evaluate rules between metrics rows. ``clients`` maps client ids to seconds since the last trajectory."""
        now = self._clock()
        inputs = RuleInput(step, now, silent_seconds=now - self._row_at, clients=clients)
        self._check([*self._row_rules, *self._progress_rules], inputs)

    def fail(self, step: int, error: BaseException) -> None:
        """Evaluate the alert rules on the error that ends the run."""
        if isinstance(error, Exception):
            numerical = isinstance(error, NumericalError)
            text = str(error) or type(error).__name__
            self._check(self._row_rules, RuleInput(step, self._clock(), error=text, numerical=numerical))

    def active(self) -> list[str]:
        """Return the active alerts, one line each."""
        rules = [*self._row_rules, *self._progress_rules]
        return [f"{rule.name}: {rule.message}" for rule in rules if rule.message]

    def state(self) -> State:
        states = {rule.name: rule.state() for rule in self._row_rules}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: State) -> None:
        """Restore the states of the rules that the config still contains."""
        for rule in self._row_rules:
            if rule.name in state:
                rule.restore(state[rule.name])

    def _check(self, rules: list[RuleState], inputs: RuleInput) -> None:
        for rule in rules:
            alert = rule.check(inputs)
            if alert is not None:
                self._send(rule, alert)
        self._report_delivery_errors()

    def _send(self, rule: RuleState, alert: Alert) -> None:
        record = describe(alert, self._run, self._advice(alert))
        try:
            if not self._log.write(record):
                return
        except OSError as problem:
            # The alert may be about a full disk, so send it anyway.
            self._note(f"cannot write an alert to {self._log.path}: {problem.strerror}")
        self._note(f"alert {alert.rule} has cleared" if alert.cleared else f"alert {alert.rule}: {record['message']}")
        if rule.rule.send and not alert.cleared:
            self._delivery.send(record)

    def _advice(self, alert: Alert) -> str:
        left = self._memory.available_bytes if self._memory else None
        return self._run.advice(left) if alert.kind == "memory" and left is not None and not alert.cleared else ""

    def _measure(self, now: float) -> MemoryUsage | None:
        """Measure RAM, at most once every few seconds."""
        if not self._measures_memory or now - self._measured_at < _MEMORY_SECONDS:
            return None
        self._measured_at, self._memory = now, measure_memory_usage()
        return self._memory

    def _report_delivery_errors(self) -> None:
        for error in self._delivery.errors():
            self._note(error)

    def _run_watchdog(self, done: threading.Event) -> None:
        while not done.wait(self._poll_seconds):
            now = self._clock()
            self._check(self._progress_rules, RuleInput(self._step, now, silent_seconds=now - self._row_at))


def describe(alert: Alert, run: WatchedRun, advice: str = "") -> dict[str, Any]:
    """Build the JSON record of an alert. ``text`` is a one-line summary for chat systems."""
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
        "run": str(run.path.resolve()),
        **run.facts,
        "host": socket.gethostname(),
        "text": f"{run.path.name}: {alert.rule}: {message} (step {alert.step:,})",
    }
