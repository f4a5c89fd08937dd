"""Tests of videos that are recorded during training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rl4sys.errors import ConfigError
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop

from ..conftest import SilentObserver

WITH_VIDEOS = ("logging.video_frequency=250", "logging.video_length=5")


def training_files(run: Run) -> dict[str, bytes]:
    latest = run.path / "checkpoints" / "latest"
    files = [latest / "state.json", latest / "state.safetensors", latest / "policy.safetensors", run.metrics]
    return {file.name: file.read_bytes() for file in files}


def videos(run: Run) -> list[str]:
    return sorted(path.name for path in (run.path / "videos").iterdir())


def test_videos_do_not_change_training(make_loop: Callable[..., TrainingLoop]) -> None:
    plain, recorded = make_loop("sac"), make_loop("sac", *WITH_VIDEOS)
    plain.train()
    recorded.train()
    assert len(videos(recorded._run)) >= 3, "no videos were recorded"
    assert videos(recorded._run)[-1] == f"step_{recorded.progress().steps:012d}.mp4"
    assert training_files(recorded._run) == training_files(plain._run)


def test_video_interrupted_by_stop_is_recorded_after_resume(make_loop: Callable[..., TrainingLoop]) -> None:
    # The video is due at the same step as an evaluation. The resumed run must repeat neither of them.
    straight, stopped = (make_loop("ppo", *WITH_VIDEOS, "logging.video_frequency=300") for _ in range(2))
    straight.train()
    record = stopped._video_recorder.record  # type: ignore[union-attr]

    def stop_at_first_video(step: int, policy: object, stopping: object) -> Path | None:
        stopped.stop()
        return record(step, policy, stopping)  # type: ignore[arg-type]

    stopped._video_recorder.record = stop_at_first_video  # type: ignore[union-attr, method-assign, assignment]
    assert not stopped.train().finished
    assert videos(stopped._run) == []
    resumed = make_loop("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert videos(resumed._run) == videos(straight._run)
    assert training_files(resumed._run) == training_files(straight._run)


def test_unwritable_video_does_not_stop_training(
    make_loop: Callable[..., TrainingLoop],
) -> None:
    observer = SilentObserver()
    loop = make_loop("ppo", "logging.video_frequency=900", observer=observer)
    folder = loop._run.path / "videos"
    folder.rmdir()
    folder.touch()
    assert loop.train().finished
    assert any(note.startswith("no video at step 960: ") for note in observer.notes)


def test_environment_without_rgb_rendering_is_rejected_before_training(make_loop: Callable[..., TrainingLoop]) -> None:
    with pytest.raises(ConfigError, match=r"render_mode"):
        make_loop("ppo", *WITH_VIDEOS, "environment.name=Taxi-v3", "environment.options={render_mode: ansi}")
