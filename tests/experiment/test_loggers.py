"""Measurements in TensorBoard and Weights & Biases."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.experiment.config import WandbSettings
from rl4sys.experiment.loggers import TensorBoardLogger, WandbLogger


def test_tensorboard_shows_what_was_logged_and_forgets_what_was_superseded(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoardLogger(tmp_path, 0)
    for step in (10, 20, 30):
        first.log(step, {"loss/policy": float(step)})
    first.close()
    resumed = TensorBoardLogger(tmp_path, 20)
    resumed.log(30, {"loss/policy": -1.0})
    resumed.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss/policy")] == [(10, 10.0), (20, 20.0), (30, -1.0)]


def test_wandb_records_offline_without_a_key_and_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = WandbLogger(WandbSettings(enabled=True), {"a": 1}, tmp_path, "run")
    logger.log(1, {"x": 2.0})
    logger.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
