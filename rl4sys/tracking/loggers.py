"""Optional loggers: TensorBoard, Weights & Biases, MLflow and custom loggers."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl4sys.environments.video import as_gif
from rl4sys.extras import needed_by
from rl4sys.runs.config import WandbConfig
from rl4sys.runs.metrics import Logger
from rl4sys.runs.run import Run
from rl4sys.tracking.mlflow_logger import LoggedRun, MlflowLogger, Row
from rl4sys.tracking.own_loggers import OwnLogger

_WANDB_TIMEOUT_SECONDS = 15


class VideoLogger(Logger, Protocol):
    """Logger that also accepts videos."""

    def log_video(self, step: int, video: Path) -> None: ...


def make_loggers(run: Run, first_step: int, note: Callable[[str], None]) -> list[VideoLogger]:
    """Create the enabled loggers. They replace the rows that an earlier attempt has logged after `first_step`."""
    loggers: list[VideoLogger] = []
    logging, name = run.config.logging, run.path.name
    if logging.tensorboard:
        loggers.append(TensorBoardLogger(run.logs, first_step))
    if logging.wandb.enabled:
        loggers.append(WandbLogger(logging.wandb, run.config.to_settings(), run.logs, name))
    if logging.mlflow.enabled:
        logged = LoggedRun(name, run.path, run.config.to_settings(), _rows_until(run, first_step))
        loggers.append(MlflowLogger(logging.mlflow, logged, note))
    return [*loggers, *(OwnLogger(own, run, note) for own in logging.loggers)]


def _rows_until(run: Run, step: int) -> list[Row]:
    return [(row.pop("step"), row) for row in run.directory.metric_rows() if row["step"] <= step]


class TensorBoardLogger:
    def __init__(self, logs: Path, first_step: int) -> None:
        with needed_by("logging.tensorboard", "turn the setting off"):
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(logs))
        # TensorBoard drops rows that earlier processes wrote at or after the step of a START event.
        self._add(first_step + 1, session_log=SessionLog(status=SessionLog.START))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step, summary=self._summary(value=values))

    def log_video(self, step: int, video: Path) -> None:
        """Log a video as an animated GIF, because TensorBoard has no video type."""
        width, height, gif = as_gif(video)
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        value = self._summary.Value(tag="video", image=image)
        self._add(step, summary=self._summary(value=[value]))

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, **content))


class WandbLogger:
    """Weights & Biases logger. Logs online if WANDB_API_KEY is set, otherwise offline. Never prompts for a key."""

    def __init__(self, config: WandbConfig, run_settings: Mapping[str, Any], logs: Path, name: str) -> None:
        with needed_by("logging.wandb", "turn the setting off"):
            import wandb
        self._video = wandb.Video
        start = partial(
            wandb.init,
            project=config.project,
            tags=config.tags,
            name=name,
            # With the same id, a resumed run continues its W&B run.
            id=hashlib.sha256(name.encode()).hexdigest()[:16],
            resume="allow",
            config=dict(run_settings),
            dir=str(logs),
            settings=wandb.Settings(silent=True, console="off", init_timeout=_WANDB_TIMEOUT_SECONDS),
        )
        online = "WANDB_API_KEY" in os.environ and os.environ.get("WANDB_MODE", "online") == "online"
        try:
            self._run = start(mode="online" if online else "offline")
        except wandb.errors.Error:
            # Without a network, record offline; users can upload the run later with `wandb sync`.
            self._run = start(mode="offline")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def log_video(self, step: int, video: Path) -> None:
        self._run.log({"video": self._video(str(video), format="mp4")}, step=step)

    def close(self) -> None:
        self._run.finish()
