"""MLflow logger. A separate thread sends the rows, so training never waits for the tracking server.

Failed requests are retried with exponential backoff. Rows that are not sent when a run ends are sent from metrics.jsonl
when the run is resumed.
"""

from __future__ import annotations

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

from rl4sys.extras import check_installed
from rl4sys.runs.config import MlflowConfig
from rl4sys.runs.directory import RunDirectory
from rl4sys.runs.files import replace_file

Row: TypeAlias = tuple[int, Mapping[str, float]]
"""Metrics row: the step, and the value of each metric by name."""

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0
_MAX_BATCH_METRICS, _MAX_BATCH_PARAMETERS, _MAX_PARAMETER_LENGTH = 1000, 100, 6000
_CLIENT_ENVIRONMENT = {
    # By default, MLflow retries each request for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # Send data only to the server that the user configured.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True)
class LoggedRun:
    """Run to log, with its settings and the rows of earlier attempts."""

    name: str
    path: Path
    settings: Mapping[str, Any]
    earlier_rows: Sequence[Row]


class MlflowLogger:
    """Logger to one MLflow run. A resumed run continues the same MLflow run."""

    close_timeout_seconds: ClassVar[float] = 30.0
    """Maximum time that `close` waits until all rows are sent."""

    def __init__(self, config: MlflowConfig, run: LoggedRun, note: Callable[[str], None]) -> None:
        uri = config.tracking_uri or f"sqlite:///{run.path.parent.absolute() / 'mlflow.db'}"
        _check_installed(uri)
        self._note = note
        # The queue is unbounded, because rows are small and must not be dropped.
        self._queue: SimpleQueue[Row | Path | None] = SimpleQueue()
        for row in run.earlier_rows:
            self._queue.put(row)
        self._sender = _Sender(_MlflowRun(uri, config.experiment, run), self._queue, note)
        self._sender.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._queue.put((step, dict(metrics)))

    def log_video(self, step: int, video: Path) -> None:
        self._queue.put(video)

    def close(self) -> None:
        self._queue.put(None)
        self._sender.join(self.close_timeout_seconds)
        if self._sender.is_alive() or not self._sender.done:
            self._note(
                "some rows were not sent to MLflow; they are in metrics.jsonl and are sent when the run is resumed"
            )


class _Sender(Thread):
    """Thread that sends queued rows and videos. The queue element None makes it send once more and then end."""

    def __init__(self, remote: _MlflowRun, queue: SimpleQueue[Row | Path | None], note: Callable[[str], None]) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._remote, self._queue, self._note = remote, queue, note
        self._pending: list[Row | Path] = []
        self._failures = 0
        self.done = False

    def run(self) -> None:
        closing = False
        while not closing:
            closing = self._collect()
            self.done = self._send(closing=closing) and closing

    def _collect(self) -> bool:
        """Collect queued items; after a failure, wait until the next retry. Return True if the queue is closed."""
        until = time.monotonic() + self._retry_seconds()
        while True:
            try:
                item = self._queue.get(timeout=max(until - time.monotonic(), 0.0) if self._pending else None)
            except Empty:
                return False
            if item is None:
                return True
            self._pending.append(item)

    def _retry_seconds(self) -> float:
        return min(_FIRST_RETRY_SECONDS * 2**self._failures, _MAX_RETRY_SECONDS) if self._failures else 0.0

    def _send(self, *, closing: bool) -> bool:
        """Send all pending items. If a request fails, keep the items and return False."""
        try:
            self._remote.send(self._pending)
            if closing:
                self._remote.finish()
        except Exception as problem:
            # MLflow and its HTTP client raise many types of exceptions.
            if not self._failures:
                self._note(f"cannot reach MLflow; training continues, and sending is retried: {_first_line(problem)}")
            self._failures += 1
            return False
        self._pending, self._failures = [], 0
        return True


class _MlflowRun:
    """MLflow run on a server or in a local database, created or reopened when the first items are sent."""

    def __init__(self, uri: str, experiment: str, run: LoggedRun) -> None:
        self._uri, self._experiment, self._run = uri, experiment, run
        self._file = RunDirectory(run.path).logs / "mlflow.json"
        self._client: Any = None
        self._run_id = ""
        self._last_steps: dict[str, int] = {}
        """Last sent step of each metric. Earlier steps, which a resumed run may log again, are not sent twice."""

    def send(self, items: Sequence[Row | Path]) -> None:
        if self._client is None:
            self._connect()
        metrics = [metric for item in items if not isinstance(item, Path) for metric in self._unsent(item)]
        for batch in _batches(metrics, _MAX_BATCH_METRICS):
            self._client.log_batch(self._run_id, metrics=batch)
            self._last_steps |= {metric.key: metric.step for metric in batch}
        for item in items:
            if isinstance(item, Path):
                self._client.log_artifact(self._run_id, str(item), "videos")

    def finish(self) -> None:
        self._client.set_terminated(self._run_id)

    def _unsent(self, row: Row) -> Iterator[Any]:
        from mlflow.entities import Metric

        step, metrics = row
        for name, value in metrics.items():
            if name != "step" and step > self._last_steps.get(name, -1):
                yield Metric(name, value, int(time.time() * 1000), step)

    def _connect(self) -> None:
        for name, value in _CLIENT_ENVIRONMENT.items():
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
        self._last_steps = {
            name: max(metric.step for metric in client.get_metric_history(run_id, name)) for name in known
        }
        client.update_run(run_id, status="RUNNING")
        self._run_id = run_id

    def _create(self, client: Any) -> None:
        found = client.get_experiment_by_name(self._experiment)
        experiment_id = found.experiment_id if found else client.create_experiment(self._experiment, self._artifacts())
        run_id = client.create_run(experiment_id, run_name=self._run.name).info.run_id
        replace_file(self._file, json.dumps({"tracking_uri": self._uri, "run_id": run_id}).encode())
        for batch in _batches(_parameters(self._run.settings), _MAX_BATCH_PARAMETERS):
            client.log_batch(run_id, params=batch)
        self._run_id = run_id

    def _artifacts(self) -> str | None:
        """Return the folder for artifacts next to a local database, or None to let the server select a location."""
        folder = self._run.path.parent.absolute() / "mlflow"
        return folder.as_uri() if self._uri.startswith("sqlite:") else None


def _parameters(settings: Mapping[str, Any], prefix: str = "") -> list[Any]:
    from mlflow.entities import Param

    found: list[Any] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += _parameters(value, f"{prefix}{key}.")
        else:
            found.append(Param(f"{prefix}{key}", str(value)[:_MAX_PARAMETER_LENGTH]))
    return found


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _check_installed(uri: str) -> None:
    required = ("mlflow", "sqlalchemy", "alembic") if uri.startswith("sqlite:") else ("mlflow",)
    check_installed("logging.mlflow", *required, remedy="turn the setting off")


def _first_line(problem: Exception) -> str:
    return (str(problem) or repr(problem)).splitlines()[0][:300]
