"""Videos while a policy is being trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rl4sys.errors import ConfigError
from rl4sys.experiment.run import Run
from rl4sys.trainer import Trainer

from .conftest import Silent

FILMED = ("logging.video_frequency=250", "logging.video_length=5")


def learnt(run: Run) -> dict[str, bytes]:
    latest = run.path / "checkpoints" / "latest"
    files = [latest / "state.json", latest / "state.safetensors", latest / "policy.safetensors", run.metrics]
    return {file.name: file.read_bytes() for file in files}


def videos(run: Run) -> list[str]:
    return sorted(path.name for path in (run.path / "videos").iterdir())


def test_a_run_that_is_filmed_learns_the_same(make_trainer: Callable[..., Trainer]) -> None:
    plain, filmed = make_trainer("sac"), make_trainer("sac", *FILMED)
    plain.train()
    filmed.train()
    assert len(videos(filmed._run)) >= 3, "a run without videos proves nothing"
    assert videos(filmed._run)[-1] == f"step_{filmed.progress().steps:012d}.mp4"
    assert learnt(filmed._run) == learnt(plain._run)


def test_a_stop_while_filming_leaves_it_to_the_resumed_run(make_trainer: Callable[..., Trainer]) -> None:
    # Filmed where it is evaluated as well: neither may be done twice.
    straight, stopped = (make_trainer("ppo", *FILMED, "logging.video_frequency=300") for _ in range(2))
    straight.train()
    shoot = stopped._filming.shoot  # type: ignore[union-attr]

    def stop_at_the_first(step: int, policy: object, stopping: object) -> Path | None:
        stopped.stop()
        return shoot(step, policy, stopping)  # type: ignore[arg-type]

    stopped._filming.shoot = stop_at_the_first  # type: ignore[union-attr, method-assign, assignment]
    assert not stopped.train().finished
    assert videos(stopped._run) == []
    resumed = make_trainer("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert videos(resumed._run) == videos(straight._run)
    assert learnt(resumed._run) == learnt(straight._run)


def test_a_video_that_cannot_be_written_is_noted_and_training_goes_on(make_trainer: Callable[..., Trainer]) -> None:
    observer = Silent()
    trainer = make_trainer("ppo", "logging.video_frequency=900", observer=observer)
    folder = trainer._run.path / "videos"
    folder.rmdir()
    folder.touch()
    assert trainer.train().finished
    assert any(note.startswith("no video at step 960: ") for note in observer.notes)


def test_what_cannot_be_filmed_is_refused_before_training(make_trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(ConfigError, match=r"render_mode"):
        make_trainer("ppo", *FILMED, "environment.name=Taxi-v3", "environment.options={render_mode: ansi}")
