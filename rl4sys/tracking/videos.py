"""Videos of the policy during training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rl4sys.environments.rendering import Rollouts, check_renderable, roll_out
from rl4sys.environments.video import Video, check_video
from rl4sys.policy.base import Policy
from rl4sys.runs.run import Run


class VideoRecorder:
    """Records episodes of the current policy in a separate environment, so training is not affected."""

    def __init__(self, run: Run, note: Callable[[str], None]) -> None:
        """Check that videos of the environment can be recorded, so that errors are raised before training."""
        self._folder, self._config, self._note = run.directory.videos, run.config, note
        self._folder.mkdir(exist_ok=True)
        check_video(self._folder / "step.mp4")
        check_renderable(run.config.environment)

    def record(self, step: int, policy: Policy, stopping: Callable[[], bool]) -> Path | None:
        """Record the policy after `step` steps and return the file. Print a note and return None if writing fails."""
        path, logging = self._folder / f"step_{step:012d}.mp4", self._config.logging
        rollouts = Rollouts(logging.video_episodes, logging.video_length, self._config.experiment.seed)
        try:
            with Video(path) as video:
                roll_out(self._config.environment, policy, rollouts, video, stopping)
        except OSError as problem:
            # A failed video must not stop training.
            self._note(f"no video at step {step:,}: {problem}")
            return None
        return path
