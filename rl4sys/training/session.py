"""Functions to start and resume training runs, shared by the command line and the Python API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rl4sys.buffers.base import AutoSize
from rl4sys.config import Settings, differences
from rl4sys.errors import CheckpointError, ConfigError
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Observer

Loop = TypeVar("Loop", bound=TrainingLoop)


def open_loop(run: Run, make: Callable[[Run, Observer], Loop], observer: Observer) -> Loop:
    """Create the training loop of a run, resumed from the newest checkpoint. Deletes a new run that cannot start."""
    resumes = bool(run.checkpoints.names())
    try:
        loop = make(run, observer)
    except Exception:
        if not resumes:
            run.discard()
        raise
    if resumes:
        loop.resume()
    return loop


def check_resumable(run: Run) -> None:
    """Raise `CheckpointError` if a run has no checkpoint to resume from."""
    if not run.checkpoints.names():
        raise CheckpointError(
            f"{run.path} has no checkpoint to resume from: the run ended before its first checkpoint, or "
            f"`rl4sys cleanup` removed the checkpoints. Start a new run: rl4sys train {run.path}/configs/config.yaml"
        )


def resumed_config(run: Run, wanted: ExperimentConfig) -> ExperimentConfig:
    """Return the config for a resume. Raises ConfigError if ``wanted`` changes more than training length and alerts."""
    if isinstance(wanted.buffer.size, AutoSize):
        # Keep the size that was chosen when the run started.
        wanted = wanted.with_buffer_size(run.config.buffer.size)
    _check_same_run(run.path, run.config.to_settings(), wanted.to_settings())
    return wanted


def apply_resumed_config(run: Run, wanted: ExperimentConfig, note: Callable[[str], None]) -> None:
    """Store the config for a resume, and tell the user if the training length changes."""
    before, after = run.config.training.total_timesteps, wanted.training.total_timesteps
    if after != before:
        note(f"training.total_timesteps changed from {before:,} to {after:,}; schedules now end at step {after:,}")
    if wanted != run.config:
        run.reconfigure(wanted)


def _check_same_run(path: Path, settings: Settings, wanted: Settings) -> None:
    differing = [
        f"{key} (was {then!r}, now {now!r})"
        for key, (then, now) in differences(settings, wanted).items()
        if key != "training.total_timesteps" and not key.startswith("alerts.")
    ]
    if differing:
        raise ConfigError(
            f"{path} was started with other settings: {', '.join(differing)}. Resume without a config to keep its "
            "settings, or start a new run; only training.total_timesteps and alerts can change"
        )
