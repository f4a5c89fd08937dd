"""Everything a run writes down about its training, so that a resumed run's book reads as one never closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from rl4sys.experiment.loggers import make_loggers
from rl4sys.experiment.metrics import Logger, MetricsFile, Window
from rl4sys.experiment.run import Run
from rl4sys.spec import State


class Logbook:
    """Means of updates since the last row, and the rows themselves in metrics.jsonl and the configured loggers."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._window = Window()
        self._metrics: MetricsFile | None = None
        self._metrics_size = 0
        self._loggers: list[Logger] = []

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Ready for rows after ``step``; what an earlier life of the run wrote beyond it is superseded."""
        with ExitStack() as stack:
            for logger in make_loggers(self._run.config, self._run.logs, self._run.path.name, step):
                stack.callback(logger.close)
                self._loggers.append(logger)
            self._metrics = MetricsFile(self._run.metrics, self._metrics_size)
            stack.callback(self._close_metrics, self._metrics)
            yield

    def add(self, metrics: Mapping[str, float]) -> None:
        """Count an update towards the next row of means."""
        self._window.add(metrics)

    def write_means(self, step: int, more: Mapping[str, float]) -> None:
        """A row of the means since the last such row, with ``more`` beside them."""
        self.write(step, {**self._window.take(), **more})

    def write(self, step: int, row: Mapping[str, float]) -> None:
        assert self._metrics is not None  # rows are written while the book is open
        for logger in (self._metrics, *self._loggers):
            logger.log(step, row)

    def state(self) -> State:
        if self._metrics is not None:
            self._metrics_size = self._metrics.sync()
        return {"window": self._window.state(), "metrics_size": self._metrics_size}

    def restore(self, state: State) -> None:
        self._window.restore(state["window"])
        self._metrics_size = int(state["metrics_size"])

    def _close_metrics(self, metrics: MetricsFile) -> None:
        self._metrics_size, self._metrics = metrics.sync(), None
        self._loggers = []
        metrics.close()
