"""Learner of one policy, trained from its journal, with its metrics, alerts and checkpoints.

The models depend only on the checkpoint and on the trajectories after it in the journal. A learner that is killed at
any point therefore creates the same models again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from rl4sys.alerts.watch import Watch, WatchedRun
from rl4sys.learner.footprint import buffer_footprint
from rl4sys.learner.learner import Learner
from rl4sys.runs.run import Run
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import EncodedTrajectory
from rl4sys.server.learner_statistics import RECENT, ClientSequences, EpisodeStatistics
from rl4sys.server.live_config import live_learner_config
from rl4sys.spec import Spec, State
from rl4sys.tracking.logbook import Logbook
from rl4sys.training.warm_start import warm_start


class JournalLearner:
    """Learner with its position in the journal, and everything else that a checkpoint stores.

    `log_message` is called with each message for the server's log.
    """

    def __init__(
        self, run: Run, learner: Learner, spec: Spec, server: ServerConfig, log_message: Callable[[str], None]
    ) -> None:
        self.learner, self.row = learner, 0
        self.episodes = EpisodeStatistics()
        self.clients = ClientSequences(server.limits.max_clients)
        self._run, self._spec, self._server, self._log_message = run, spec, server, log_message
        self._logbook = Logbook(run)
        self._watch = _make_watch(run, server, spec, log_message)
        self._staleness: deque[int] = deque(maxlen=RECENT)
        self._saved_rows: list[int] = []
        self._logged_at = 0
        self._status_row = -1

    def resume(self) -> None:
        """Restore the newest valid checkpoint, or run the configured warm start if there is no checkpoint."""
        if not self._run.checkpoints.names():
            self._logbook.add(warm_start(self.learner, self._spec, self._run.config))
            return
        found = self._run.checkpoints.load()
        for damage in found.passed_over:
            self._log_message(f"{damage}; using {found.name} instead")
        self._restore(found.state)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Context with open log files and active alert rules. The rules also evaluate errors inside the context."""
        with self._logbook.opened(self._logged_at), self._watch.opened(watchdog=False), self._alert_on_failure():
            yield

    def learn(self, entry: EncodedTrajectory) -> None:
        """Train on the next trajectory of the journal; write metrics if due."""
        trajectory = entry.decode()
        self._staleness.append(self.learner.version - trajectory.version)
        self.episodes.add(trajectory)
        for metrics in self.learner.learn([trajectory]):
            self._logbook.add(metrics)
        self.row = entry.row
        self.clients.add(entry.sender, entry.sequence)
        self._log_if_due()

    @property
    def has_checkpoint(self) -> bool:
        return bool(self._saved_rows)

    @property
    def has_unsaved_rows(self) -> bool:
        return self._saved_rows[-1] != self.row

    def save(self) -> int:
        """Write a checkpoint. Returns the last journal row that is part of all stored checkpoints."""
        self._saved_rows = [*self._saved_rows, self.row][-self._server.keep_checkpoints :]
        self._run.checkpoints.save(
            self.learner.steps + self.learner.refused, self._state(), self.learner.snapshot_or_none()
        )
        return self._saved_rows[0]

    def mean_staleness(self) -> float:
        return float(np.mean(self._staleness)) if self._staleness else 0.0

    def active_alerts(self) -> list[str]:
        return self._watch.active()

    def update_status(self) -> None:
        """Write the status file if it is out of date, and check the alert rules about clients."""
        if self._status_row != self.row:
            self.write_status("running")
        self._watch.check_clients(self.learner.steps, self.clients.seconds_inactive())

    def write_status(self, status: str) -> None:
        self._status_row = self.row
        self._run.write_status(
            {
                "status": status,
                "steps": self.learner.steps,
                "refused_steps": self.learner.refused,
                "version": self.learner.version,
                "episode_return": self.episodes.means().get("episode/return"),
            }
        )

    @contextmanager
    def _alert_on_failure(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError):
            # The server process has ended; learning itself did not fail.
            raise
        except Exception as error:
            self._watch.fail(self.learner.steps, error)
            raise

    def _log_if_due(self) -> None:
        steps, frequency = self.learner.steps, self._server.log_frequency
        if steps // frequency == self._logged_at // frequency:
            return
        self._logged_at = steps
        row = {
            "learner/version": float(self.learner.version),
            "learner/refused_steps": float(self.learner.refused),
            "learner/staleness": self.mean_staleness(),
        }
        self._watch.check_row(steps, self._logbook.write_means(steps, row | self.episodes.means()))

    def _state(self) -> State:
        return {
            "learner": self.learner.state(),
            "logbook": self._logbook.state(),
            "episodes": self.episodes.state(),
            "staleness": list(self._staleness),
            "taken": self.clients.state(),
            "row": self.row,
            "saved_rows": list(self._saved_rows),
            "logged_at": self._logged_at,
            "alerts": self._watch.state(),
        }

    def _restore(self, state: State) -> None:
        self.learner.restore(state["learner"])
        self._logbook.restore(state["logbook"])
        self.episodes.restore(state["episodes"])
        self._staleness.extend(state["staleness"])
        self.clients.restore(state["taken"])
        self.row, self._saved_rows = state["row"], list(state["saved_rows"])
        self._logged_at = state["logged_at"]
        self._watch.restore(state.get("alerts", {}))


def _make_watch(run: Run, server: ServerConfig, spec: Spec, log_message: Callable[[str], None]) -> Watch:
    """Create the alert watch with the server's current rules; the rules in the run's config may be outdated."""
    needs = buffer_footprint(spec, live_learner_config(run.config, "cpu"))
    return Watch(server.alerts, WatchedRun(run.path, run.facts(), needs.remaining_bytes, needs.advice), log_message)
