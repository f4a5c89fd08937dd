"""Loggers beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl4sys.environments.video import as_gif
from rl4sys.errors import MissingExtraError
from rl4sys.experiment.config import WandbSettings
from rl4sys.experiment.metrics import Logger, read_metrics
from rl4sys.experiment.mlflow_logger import MlflowLogger, Row, Subject
from rl4sys.experiment.run import Run

_WANDB_TIMEOUT_SECONDS = 15


class VideoLogger(Logger, Protocol):
    """Somewhere that videos go, too."""

    def log_video(self, step: int, video: Path) -> None: ...


def make_loggers(run: Run, first_step: int, note: Callable[[str], None]) -> list[VideoLogger]:
    """Those the config turns on; rows after ``first_step`` of an earlier life of the run are superseded."""
    loggers: list[VideoLogger] = []
    logging, name = run.config.logging, run.path.name
    if logging.tensorboard:
        loggers.append(TensorBoardLogger(run.logs, first_step))
    if logging.wandb.enabled:
        loggers.append(WandbLogger(logging.wandb, run.config.to_settings(), run.logs, name))
    if logging.mlflow.enabled:
        subject = Subject(name, run.path, run.config.to_settings(), _rows_until(run, first_step))
        loggers.append(MlflowLogger(logging.mlflow, subject, note))
    return loggers


def _rows_until(run: Run, step: int) -> list[Row]:
    rows = read_metrics(run.metrics) if run.metrics.is_file() else []
    return [(row.pop("step"), row) for row in rows if row["step"] <= step]


class TensorBoardLogger:
    def __init__(self, logs: Path, first_step: int) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as problem:
            raise _missing("logging.tensorboard", problem) from problem
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(logs))
        # TensorBoard drops what an earlier process logged at or after the step of a START.
        self._add(first_step + 1, session_log=SessionLog(status=SessionLog.START))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step, summary=self._summary(value=values))

    def log_video(self, step: int, video: Path) -> None:
        """TensorBoard shows no videos, but gifs that move."""
        width, height, gif = as_gif(video)
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        value = self._summary.Value(tag="video", image=image)
        self._add(step, summary=self._summary(value=[value]))

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, **what: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, **what))


class WandbLogger:
    """Records offline unless an API key is at hand; never asks for one."""

    def __init__(self, settings: WandbSettings, config: Mapping[str, Any], logs: Path, name: str) -> None:
        try:
            import wandb
        except ModuleNotFoundError as problem:
            raise _missing("logging.wandb", problem) from problem
        self._video = wandb.Video
        start = partial(
            wandb.init,
            project=settings.project,
            tags=settings.tags,
            name=name,
            # The same run after a resume, not a second one.
            id=hashlib.sha256(name.encode()).hexdigest()[:16],
            resume="allow",
            config=dict(config),
            dir=str(logs),
            settings=wandb.Settings(silent=True, console="off", init_timeout=_WANDB_TIMEOUT_SECONDS),
        )
        online = "WANDB_API_KEY" in os.environ and os.environ.get("WANDB_MODE", "online") == "online"
        try:
            self._run = start(mode="online" if online else "offline")
        except wandb.errors.Error:
            # A key but no network: the run is worth more than its upload, and can be synced later.
            self._run = start(mode="offline")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def log_video(self, step: int, video: Path) -> None:
        self._run.log({"video": self._video(str(video), format="mp4")}, step=step)

    def close(self) -> None:
        self._run.finish()


def _missing(setting: str, problem: ModuleNotFoundError) -> MissingExtraError:
    return MissingExtraError(
        f"{setting} is on but {problem.name} is not installed: pip install 'rl4sys[train]', or turn the setting off"
    )
