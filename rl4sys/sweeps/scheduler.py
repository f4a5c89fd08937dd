"""Scheduler that runs the trials of a sweep or study on an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rl4sys.sweeps.trials import Ended, Evaluated, Event, Progressed, Trial, TrialState, TrialStatus, TrialTask

_EVENTS_SECONDS = 0.2


class Engine(Protocol):
    """Runs several trials in parallel, for example as processes of this machine."""

    capacity: int
    """Maximum number of trials that run at the same time."""

    def start(self, task: TrialTask) -> None: ...

    def events(self, timeout_seconds: float) -> list[Event]:
        """Wait for events and return them; return an empty list after the timeout."""

    def send_decision(self, number: int, *, proceed: bool) -> None:
        """Send the decision to continue or stop to a trial that waits after an evaluation."""

    def stop(self) -> None:
        """Ask all trials to save a checkpoint and end."""

    def close(self) -> None:
        """Kill all trials that still run."""


class TrialSource(Protocol):
    """Sweep or study: decides which trials run."""

    def next_trial(self) -> Trial | None:
        """Return a trial to start now, or None if no trial is ready."""

    def task(self, trial: Trial) -> TrialTask: ...

    def should_continue(self, trial: Trial, step: int, value: float) -> bool:
        """Return True if a trial continues after an evaluation, False if the trial is pruned."""

    def on_trial_ended(self, status: TrialStatus) -> None:
        """Record the status of a trial that has completed, was pruned or has failed."""


class TrialObserver(Protocol):
    """Receives the status of trials, for example to show it in the terminal."""

    def show(self, status: TrialStatus) -> None: ...

    def tick(self) -> None:
        """Update the display. Called several times per second."""


@dataclass
class _RunningTrial:
    status: TrialStatus
    attempts: int = 1
    pruned: bool = False


@dataclass
class TrialScheduler:
    """Runs the trials of a source on an engine, in parallel up to its capacity, until no trial is left."""

    source: TrialSource
    engine: Engine
    observer: TrialObserver
    retries: int
    """Maximum number of restarts of a trial whose process died."""
    _running: dict[int, _RunningTrial] = field(default_factory=dict)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Run all trials. Once `stopping` returns True, start no more trials and stop the running trials."""
        stop_sent = False
        try:
            while self._fill_engine(stopping) or self._running:
                if stopping() and not stop_sent:
                    stop_sent = True
                    self.engine.stop()
                for event in self.engine.events(_EVENTS_SECONDS):
                    self._on_event(event, stopping())
                self.observer.tick()
        finally:
            self.engine.close()

    def _fill_engine(self, stopping: Callable[[], bool]) -> bool:
        """Start trials up to the engine's capacity; return True if any trial was started."""
        started = False
        while len(self._running) < self.engine.capacity and not stopping():
            trial = self.source.next_trial()
            if trial is None:
                break
            self._running[trial.number] = _RunningTrial(TrialStatus(trial, "running"))
            self._start(trial)
            started = True
        return started

    def _start(self, trial: Trial) -> None:
        self.engine.start(self.source.task(trial))
        self.observer.show(self._running[trial.number].status)

    def _on_event(self, event: Event, stopping: bool) -> None:
        running = self._running[event.number]
        if isinstance(event, Progressed):
            self._update(running, steps=event.steps, total_timesteps=event.total_timesteps, value=event.value)
        elif isinstance(event, Evaluated):
            proceed = self.source.should_continue(running.status.trial, event.step, event.value)
            running.pruned = not proceed
            self.engine.send_decision(event.number, proceed=proceed)
        elif event.result == "died" and running.attempts <= self.retries and not stopping:
            running.attempts += 1
            self._update(running, message=f"{event.message}; restarting from its checkpoint")
            self._start(running.status.trial)
        else:
            self._end(running, event)

    def _end(self, running: _RunningTrial, event: Ended) -> None:
        self._update(running, state=_final_state(event, pruned=running.pruned), message=event.message)
        del self._running[event.number]
        if running.status.state != "stopped":
            self.source.on_trial_ended(running.status)

    def _update(self, running: _RunningTrial, **changes: Any) -> None:
        running.status = replace(running.status, **changes)
        self.observer.show(running.status)


def _final_state(event: Ended, *, pruned: bool) -> TrialState:
    if event.result == "died":
        return "failed"
    return "pruned" if event.result == "stopped" and pruned else event.result
