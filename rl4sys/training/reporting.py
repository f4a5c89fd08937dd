"""Metrics, alerts and status file of a training run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from rl4sys.alerts.watch import Watch, WatchedRun
from rl4sys.environments.actor import Episode
from rl4sys.learner.footprint import buffer_footprint
from rl4sys.learner.learner import Learner
from rl4sys.runs.run import Run
from rl4sys.spec import Spec, State
from rl4sys.tracking.logbook import Logbook
from rl4sys.training.progress import Observer, Progress

_RECENT_EPISODES = 100


class Reporter:
    """Writes metrics rows and the status file, and evaluates the alert rules on every row."""

    def __init__(self, run: Run, spec: Spec, observer: Observer, clock: Callable[[], float]) -> None:
        self._run, self._clock = run, clock
        self.logbook = Logbook(run, observer.note)
        self.alerts = _make_alerts(run, spec, observer)
        self._recent: deque[Episode] = deque(maxlen=_RECENT_EPISODES)
        self._started_at, self._started_steps = clock(), 0

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Return a context in which the metrics files are open and alert rules are evaluated."""
        with self.logbook.opened(step), self.alerts.opened(watchdog=True):
            self._started_at, self._started_steps = self._clock(), step
            yield

    def add_episodes(self, episodes: Iterable[Episode]) -> None:
        self._recent.extend(episodes)

    @property
    def recent_return(self) -> float | None:
        """Mean return of the last 100 training episodes; None before the end of the first episode."""
        return float(np.mean([e.total_reward for e in self._recent])) if self._recent else None

    def steps_per_second(self, step: int) -> float:
        elapsed = max(self._clock() - self._started_at, 1e-9)
        return (step - self._started_steps) / elapsed

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Write a metrics row and evaluate the alert rules on it."""
        self.logbook.write(step, row)
        self.alerts.check_row(step, row)

    def write_means(self, step: int, learner: Learner) -> None:
        """Write a metrics row: means of update metrics since the last call, recent episodes, and learner version."""
        row = {"learner/version": float(learner.version), "learner/refused_steps": float(learner.refused)}
        if self._recent:
            row["episode/return"] = float(np.mean([e.total_reward for e in self._recent]))
            row["episode/length"] = float(np.mean([e.length for e in self._recent]))
        self.alerts.check_row(step, self.logbook.write_means(step, row))

    def write_status(self, status: str, progress: Progress, best_return: float | None) -> None:
        evaluation = progress.evaluation
        self._run.write_status(
            {
                "status": status,
                "steps": progress.steps,
                "total_timesteps": progress.total_timesteps,
                "version": progress.version,
                "steps_per_second": round(progress.steps_per_second, 1),
                "evaluation_return": evaluation.mean_return if evaluation else None,
                "best_evaluation_return": best_return,
            }
        )

    def recent_state(self) -> list[list[float]]:
        return [list(episode) for episode in self._recent]

    def restore(self, state: State) -> None:
        """Restore logbook, recent episodes and alerts from the state of the training loop."""
        self.logbook.restore(state["logbook"])
        self._recent.extend(Episode(*episode) for episode in state["recent"])
        self.alerts.restore(state.get("alerts", {}))


def _make_alerts(run: Run, spec: Spec, observer: Observer) -> Watch:
    needs = buffer_footprint(spec, run.config.learner("cpu"))
    watched = WatchedRun(run.path, run.facts(), needs.remaining_bytes, needs.advice)
    return Watch(run.config.alerts, watched, observer.note)
