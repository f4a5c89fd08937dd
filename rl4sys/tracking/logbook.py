"""Metrics, digests and videos that a run writes during training. A resumed run continues the same files exactly."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from rl4sys.runs.metrics import MetricsFile, Window
from rl4sys.runs.run import Run
from rl4sys.spec import State
from rl4sys.tracking.loggers import VideoLogger, make_loggers
from rl4sys.trajectory import MEMORY, Trajectory

_log = logging.getLogger(__name__)

_POLICY_COLUMNS = ("log_prob", MEMORY)
"""Trajectory columns that the digest excludes. They depend on the weights, which `verify` compares directly."""
_DIGEST_BYTES = 8


class Logbook:
    """Writer of metrics rows to metrics.jsonl and the configured loggers.

    A row contains the means of the metrics of several updates. With each row of means, the digest of all experience so
    far is written to digests.jsonl.
    """

    def __init__(self, run: Run, note: Callable[[str], None] = _log.warning) -> None:
        """`note` receives messages of loggers for the user; it may be called from any thread."""
        self._run, self._note = run, note
        self._window = Window()
        self._metrics: MetricsFile | None = None
        self._digests: MetricsFile | None = None
        self._digest = ExperienceDigest()
        self._sizes = {"metrics": 0, "digests": 0}
        self._loggers: list[VideoLogger] = []

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Open files and loggers for rows after `step`. Discards rows that an earlier attempt wrote after `step`."""
        with ExitStack() as stack:
            for logger in make_loggers(self._run, step, self._note):
                stack.callback(logger.close)
                self._loggers.append(logger)
            self._metrics = self._run.directory.open_metrics(self._sizes["metrics"])
            stack.callback(self._metrics.close)
            self._digests = self._run.directory.open_digests(self._sizes["digests"])
            stack.callback(self._digests.close)
            stack.callback(self._close)
            yield

    def add_experience(self, trajectories: Iterable[Trajectory]) -> None:
        """Add experience to the digest. Servers do not call this: their journal holds the experience."""
        self._digest.update(trajectories)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of one update to the next row of means."""
        self._window.add(metrics)

    def write_means(self, step: int, more: Mapping[str, float]) -> Mapping[str, float]:
        """Write and return a row with the metrics in `more` and the means of all metrics added since the last call."""
        assert self._digests is not None  # rows are written only inside the context `opened`
        row = {**self._window.take(), **more}
        self.write(step, row)
        if self._digest.text:
            self._digests.log(step, {"experience": self._digest.text})
        return row

    def write(self, step: int, row: Mapping[str, float]) -> None:
        assert self._metrics is not None  # rows are written only inside the context `opened`
        for logger in (self._metrics, *self._loggers):
            logger.log(step, row)

    def write_video(self, step: int, video: Path) -> None:
        """Send a video of the policy to all loggers."""
        for logger in self._loggers:
            try:
                logger.log_video(step, video)
            except OSError as problem:
                self._note(f"the video {video.name} is in videos/, but a logger failed: {problem}")

    def state(self) -> State:
        self._sync()
        return {
            "window": self._window.state(),
            "metrics_size": self._sizes["metrics"],
            "digests_size": self._sizes["digests"],
            "experience": self._digest.text,
        }

    def restore(self, state: State) -> None:
        self._window.restore(state["window"])
        # Checkpoints of earlier releases have no digest.
        self._sizes = {"metrics": int(state["metrics_size"]), "digests": int(state.get("digests_size", 0))}
        self._digest = ExperienceDigest(state.get("experience"))

    def _sync(self) -> None:
        if self._metrics is not None and self._digests is not None:
            self._sizes = {"metrics": self._metrics.sync(), "digests": self._digests.sync()}

    def _close(self) -> None:
        self._sync()
        self._metrics = self._digests = None
        self._loggers = []


class ExperienceDigest:
    """64-bit checksum of all observations, actions and rewards since the first step."""

    def __init__(self, text: str | None = "") -> None:
        """Continue from the digest `text`. None disables the digest, because earlier experience is unknown."""
        self.text = text

    def update(self, trajectories: Iterable[Trajectory]) -> None:
        if self.text is None:
            return
        digest = hashlib.blake2b(self.text.encode(), digest_size=_DIGEST_BYTES)
        for trajectory in trajectories:
            header = (trajectory.episode, trajectory.offset, trajectory.terminated, trajectory.truncated)
            digest.update(repr(header).encode())
            for name, column in trajectory.columns.items():
                if name not in _POLICY_COLUMNS:
                    digest.update(np.ascontiguousarray(column).data)
        self.text = digest.hexdigest()
