"""Everything a run writes down about its training, so that a resumed run's book reads as one never closed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rl4sys.experiment.digest import ExperienceDigest
from rl4sys.experiment.loggers import VideoLogger, make_loggers
from rl4sys.experiment.metrics import MetricsFile, Window
from rl4sys.experiment.run import Run
from rl4sys.spec import State
from rl4sys.trajectory import Trajectory

_log = logging.getLogger(__name__)


class Logbook:
    """Means of updates since the last row, and the rows themselves in metrics.jsonl and the configured loggers.

    Beside each row of means, digests.jsonl gets one of the experience so far.
    """

    def __init__(self, run: Run, note: Callable[[str], None] = _log.warning) -> None:
        """``note`` tells the user what loggers have to say, from any thread."""
        self._run, self._note = run, note
        self._window = Window()
        self._metrics: MetricsFile | None = None
        self._digests: MetricsFile | None = None
        self._digest = ExperienceDigest()
        self._sizes = {"metrics": 0, "digests": 0}
        self._loggers: list[VideoLogger] = []

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Ready for rows after ``step``; what an earlier life of the run wrote beyond it is superseded."""
        with ExitStack() as stack:
            for logger in make_loggers(self._run, step, self._note):
                stack.callback(logger.close)
                self._loggers.append(logger)
            self._metrics = MetricsFile(self._run.metrics, self._sizes["metrics"])
            stack.callback(self._metrics.close)
            self._digests = MetricsFile(self._run.digests, self._sizes["digests"])
            stack.callback(self._digests.close)
            stack.callback(self._close)
            yield

    def see(self, trajectories: Iterable[Trajectory]) -> None:
        """Count experience towards the digest; one of a live system is in its journal, and not seen here."""
        self._digest.see(trajectories)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Count an update towards the next row of means."""
        self._window.add(metrics)

    def write_means(self, step: int, more: Mapping[str, float]) -> Mapping[str, float]:
        """A row of the means since the last such row, with ``more`` beside them, as it was written."""
        assert self._digests is not None  # rows are written while the book is open
        row = {**self._window.take(), **more}
        self.write(step, row)
        if self._digest.text:
            self._digests.log(step, {"experience": self._digest.text})
        return row

    def write(self, step: int, row: Mapping[str, float]) -> None:
        assert self._metrics is not None  # rows are written while the book is open
        for logger in (self._metrics, *self._loggers):
            logger.log(step, row)

    def write_video(self, step: int, video: Path) -> None:
        """A video of the policy, to the loggers that can show one."""
        for logger in self._loggers:
            try:
                logger.log_video(step, video)
            except OSError as problem:
                self._note(f"{video.name} is in videos/, and not with the metrics: {problem}")

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
        # A checkpoint that was written before there were digests does not know its own.
        self._sizes = {"metrics": int(state["metrics_size"]), "digests": int(state.get("digests_size", 0))}
        self._digest = ExperienceDigest(state.get("experience"))

    def _sync(self) -> None:
        if self._metrics is not None and self._digests is not None:
            self._sizes = {"metrics": self._metrics.sync(), "digests": self._digests.sync()}

    def _close(self) -> None:
        self._sync()
        self._metrics = self._digests = None
        self._loggers = []
