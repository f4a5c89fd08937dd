"""Rows of metrics to MLflow, from a thread of its own: training never waits for a tracking server, nor stops for one.

What could not be sent is tried again, more and more rarely; what is still not sent when the run ends is sent by the run
that resumes it, from metrics.jsonl.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ClassVar, TypeAlias

from rl4sys.errors import MissingExtraError
from rl4sys.experiment.config import MlflowSettings
from rl4sys.experiment.files import replace_file

Row: TypeAlias = tuple[int, Mapping[str, float]]
"""A step, and what was measured there."""

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_METRICS_AT_ONCE, _PARAMETERS_AT_ONCE, _LONGEST_PARAMETER = 1000, 100, 6000
_QUIET = {
    # Its own patience is minutes, for every request.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # Nobody is told of a run but the server that the user named.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True)
class Subject:
    """What is recorded: a run with its config, and the rows it has from an earlier life."""

    name: str
    path: Path
    config: Mapping[str, Any]
    earlier: Sequence[Row]


class MlflowLogger:
    """One run here is one run there, also after it is resumed."""

    patience_seconds: ClassVar[float] = 30.0
    """How long the end of a run waits for what is on its way."""

    def __init__(self, settings: MlflowSettings, subject: Subject, note: Callable[[str], None]) -> None:
        uri = settings.tracking_uri or f"sqlite:///{subject.path.parent.absolute() / 'mlflow.db'}"
        _check_installed(uri)
        self._note = note
        # Without a bound: rows are small, and all of them are wanted.
        self._waiting: SimpleQueue[Row | Path | None] = SimpleQueue()
        for row in subject.earlier:
            self._waiting.put(row)
        self._sender = _Sender(_Remote(uri, settings.experiment, subject), self._waiting, note)
        self._sender.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._waiting.put((step, dict(metrics)))

    def log_video(self, step: int, video: Path) -> None:
        self._waiting.put(video)

    def close(self) -> None:
        self._waiting.put(None)
        self._sender.join(self.patience_seconds)
        if self._sender.is_alive() or not self._sender.done:
            self._note("MLflow did not get all rows; they are in metrics.jsonl, and resuming the run sends them")


class _Sender(Thread):
    """Sends what waits; ends when it is told that nothing more will come and all has been tried."""

    def __init__(self, remote: _Remote, waiting: SimpleQueue[Row | Path | None], note: Callable[[str], None]) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._remote, self._waiting, self._note = remote, waiting, note
        self._pending: list[Row | Path] = []
        self._failures = 0
        self.done = False

    def run(self) -> None:
        closing = False
        while not closing:
            closing = self._gather()
            self.done = self._try(closing=closing) and closing

    def _gather(self) -> bool:
        """All that waits, or, after a failure, that comes until the next try; whether nothing more will come."""
        until = time.monotonic() + self._wait_seconds()
        while True:
            try:
                item = self._waiting.get(timeout=max(until - time.monotonic(), 0.0) if self._pending else None)
            except Empty:
                return False
            if item is None:
                return True
            self._pending.append(item)

    def _wait_seconds(self) -> float:
        return min(_FIRST_WAIT_SECONDS * 2**self._failures, _LONGEST_WAIT_SECONDS) if self._failures else 0.0

    def _try(self, *, closing: bool) -> bool:
        try:
            self._remote.send(self._pending)
            if closing:
                self._remote.finish()
        except Exception as problem:
            # The edge of a remote service, which fails in ways of its own.
            if not self._failures:
                self._note(f"MLflow cannot be reached, and training goes on: {_first_line(problem)}")
            self._failures += 1
            return False
        self._pending, self._failures = [], 0
        return True


class _Remote:
    """The run's place in MLflow, found or made when it is first needed."""

    def __init__(self, uri: str, experiment: str, subject: Subject) -> None:
        self._uri, self._experiment, self._subject = uri, experiment, subject
        self._file = subject.path / "logs" / "mlflow.json"
        self._client: Any = None
        self._run_id = ""
        self._newest: dict[str, int] = {}
        """The last step there is of each metric: a run that is resumed comes by the same steps again."""

    def send(self, items: Sequence[Row | Path]) -> None:
        if self._client is None:
            self._connect()
        metrics = [metric for item in items if not isinstance(item, Path) for metric in self._new(item)]
        for batch in _batches(metrics, _METRICS_AT_ONCE):
            self._client.log_batch(self._run_id, metrics=batch)
            self._newest |= {metric.key: metric.step for metric in batch}
        for item in items:
            if isinstance(item, Path):
                self._client.log_artifact(self._run_id, str(item), "videos")

    def finish(self) -> None:
        self._client.set_terminated(self._run_id)

    def _new(self, row: Row) -> Iterator[Any]:
        from mlflow.entities import Metric

        step, metrics = row
        for name, value in metrics.items():
            if name != "step" and step > self._newest.get(name, -1):
                yield Metric(name, value, int(time.time() * 1000), step)

    def _connect(self) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        client = MlflowClient(self._uri)
        saved = json.loads(self._file.read_bytes()) if self._file.is_file() else {}
        if saved.get("tracking_uri") == self._uri:
            self._resume(client, saved["run_id"])
        else:
            self._create(client)
        self._client = client

    def _resume(self, client: Any, run_id: str) -> None:
        known = client.get_run(run_id).data.metrics
        self._newest = {name: max(metric.step for metric in client.get_metric_history(run_id, name)) for name in known}
        client.update_run(run_id, status="RUNNING")
        self._run_id = run_id

    def _create(self, client: Any) -> None:
        found = client.get_experiment_by_name(self._experiment)
        place = found.experiment_id if found else client.create_experiment(self._experiment, self._artifacts())
        run_id = client.create_run(place, run_name=self._subject.name).info.run_id
        replace_file(self._file, json.dumps({"tracking_uri": self._uri, "run_id": run_id}).encode())
        for batch in _batches(_parameters(self._subject.config), _PARAMETERS_AT_ONCE):
            client.log_batch(run_id, params=batch)
        self._run_id = run_id

    def _artifacts(self) -> str | None:
        """Beside a database of our own; a server knows its own place."""
        folder = self._subject.path.parent.absolute() / "mlflow"
        return folder.as_uri() if self._uri.startswith("sqlite:") else None


def _parameters(config: Mapping[str, Any], at: str = "") -> list[Any]:
    from mlflow.entities import Param

    found: list[Any] = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += _parameters(value, f"{at}{key}.")
        else:
            found.append(Param(f"{at}{key}", str(value)[:_LONGEST_PARAMETER]))
    return found


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _check_installed(uri: str) -> None:
    needed = ("mlflow", "sqlalchemy", "alembic") if uri.startswith("sqlite:") else ("mlflow",)
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(
                f"logging.mlflow is on but {package} is not installed: pip install 'rl4sys[mlflow]', or turn the "
                "setting off"
            )


def _first_line(problem: Exception) -> str:
    return (str(problem) or repr(problem)).splitlines()[0][:300]
