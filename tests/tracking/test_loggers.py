"""Tests of the TensorBoard, Weights & Biases and MLflow loggers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.environments.video import Video
from rl4sys.errors import MissingExtraError
from rl4sys.runs.config import MlflowConfig, WandbConfig
from rl4sys.runs.metrics import read_metrics
from rl4sys.runs.run import Run
from rl4sys.tracking.loggers import TensorBoardLogger, WandbLogger
from rl4sys.tracking.mlflow_logger import LoggedRun, MlflowLogger

from ..conftest import SilentObserver, small_config


def test_tensorboard_drops_rows_that_a_resumed_run_replaces(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    start = time.time()
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
    assert all(start <= e.wall_time <= time.time() for e in events.Scalars("loss/policy"))


def test_wandb_records_offline_without_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = WandbLogger(WandbConfig(enabled=True), {"a": 1}, tmp_path, "run")
    logger.log(1, {"x": 2.0})
    logger.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def make_video(path: Path) -> Path:
    with Video(path) as video:
        for brightness in (0, 200):
            video.show(np.full((320, 400, 3), brightness, np.uint8), frames_per_second=10)
    return path


def test_videos_are_logged_to_tensorboard_and_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    video = make_video(tmp_path / "step_000000000010.mp4")
    board, wandb = TensorBoardLogger(tmp_path, 0), WandbLogger(WandbConfig(enabled=True), {}, tmp_path, "run")
    for logger in (board, wandb):
        logger.log_video(10, video)
        logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (shown,) = events.Images("video")
    assert (shown.step, shown.width, shown.height) == (10, 300, 240)
    assert shown.encoded_image_string.startswith(b"GIF89a")
    assert list(tmp_path.glob("wandb/offline-run-*/files/media/videos/video_*.mp4"))


def histories(run: Run, uri: str) -> dict[str, list[tuple[int, float]]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("rl4sys").experiment_id])
    assert found.info.run_name == run.path.name
    assert found.info.status == "FINISHED"
    assert found.data.params["algorithm.name"] == "ppo"
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }


def expected(run: Run) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in read_metrics(run.metrics):
        for name, value in row.items():
            if name != "step":
                found.setdefault(name, []).append((row["step"], value))
    return found


@pytest.mark.filterwarnings("default")
def test_mlflow_receives_every_row_once_despite_resumes(
    tmp_path: Path, make_loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(MlflowLogger, "close_timeout_seconds", 300)
    observer, uri = SilentObserver(), f"sqlite:///{tmp_path / 'mlflow.db'}"
    loop = make_loop("ppo", observer=observer)
    run = loop._run
    observer.progress = lambda progress: loop.stop() if progress.steps == 480 else None  # type: ignore[method-assign]
    loop.train()
    # Rows from before MLflow was enabled are sent as well.
    run.reconfigure(small_config("ppo", "logging.mlflow.enabled=true", "logging.video_frequency=900"))
    for choose in (-1, 0):
        # The second resume logs rows that MLflow already has, as after a kill.
        resumed = make_loop("ppo", run=Run.open(run.path), observer=observer)
        resumed.resume([name for name in run.checkpoints.names() if name.startswith("step")][choose])
        assert resumed.train().steps == 960
        assert histories(run, uri) == expected(run)
    assert min(step for step, _ in expected(run)["loss/policy"]) < 480
    assert list((tmp_path / "mlflow").rglob("videos/step_000000000960.mp4"))
    assert observer.notes == []


@pytest.mark.filterwarnings("default")
def test_unreachable_mlflow_server_does_not_stop_training(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        config = MlflowConfig(enabled=True, tracking_uri=f"http://127.0.0.1:{unused.getsockname()[1]}")
        notes: list[str] = []
        logger = MlflowLogger(config, LoggedRun("run", run.path, {}, []), notes.append)
        for step in range(3):
            logger.log(step, {"x": 1.0})
        logger.close()
    assert [note.partition(":")[0] for note in notes] == [
        "cannot reach MLflow; training continues, and sending is retried",
        "some rows were not sent to MLflow; they are in metrics.jsonl and are sent when the run is resumed",
    ]


def test_missing_mlflow_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"logging.mlflow needs mlflow, .* pip install -e '\.\[mlflow\]'"):
        MlflowLogger(MlflowConfig(enabled=True), LoggedRun("run", tmp_path, {}, []), print)
