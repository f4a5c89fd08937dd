"""Loggers beside metrics.jsonl: TensorBoard, Weights & Biases."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rl4sys.errors import MissingExtraError
from rl4sys.experiment.config import ExperimentConfig, WandbSettings
from rl4sys.experiment.metrics import Logger

_WANDB_TIMEOUT_SECONDS = 15


def make_loggers(config: ExperimentConfig, logs: Path, name: str, first_step: int) -> list[Logger]:
    """Those the config turns on; rows after ``first_step`` of an earlier life of the run are superseded."""
    loggers: list[Logger] = []
    if config.logging.tensorboard:
        loggers.append(TensorBoardLogger(logs, first_step))
    if config.logging.wandb.enabled:
        loggers.append(WandbLogger(config.logging.wandb, config.to_settings(), logs, name))
    return loggers


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
        self._writer.add_event(Event(step=first_step + 1, session_log=SessionLog(status=SessionLog.START)))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(self._event(step=step, summary=self._summary(value=values)))

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """Records offline unless an API key is at hand; never asks for one."""

    def __init__(self, settings: WandbSettings, config: Mapping[str, Any], logs: Path, name: str) -> None:
        try:
            import wandb
        except ModuleNotFoundError as problem:
            raise _missing("logging.wandb", problem) from problem
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

    def close(self) -> None:
        self._run.finish()


def _missing(setting: str, problem: ModuleNotFoundError) -> MissingExtraError:
    return MissingExtraError(
        f"{setting} is on but {problem.name} is not installed: pip install 'rl4sys[train]', or turn the setting off"
    )
