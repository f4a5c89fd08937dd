"""Videos of a policy while it is being trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rl4sys.environments.rollouts import Rollouts, check_drawable, roll_out
from rl4sys.environments.video import Video, check_video
from rl4sys.experiment.run import Run
from rl4sys.policy.base import Policy


class Filming:
    """Films the first episodes of an evaluation, in an environment of its own: training is as it would be without."""

    def __init__(self, run: Run, note: Callable[[str], None]) -> None:
        """Refuses at once what could not be filmed later."""
        self._folder, self._config, self._note = run.path / "videos", run.config, note
        self._folder.mkdir(exist_ok=True)
        check_video(self._folder / "step.mp4")
        check_drawable(run.config.environment)

    def shoot(self, step: int, policy: Policy, stopping: Callable[[], bool]) -> Path | None:
        """The video of the policy after ``step`` steps; None, and a note, if it could not be written."""
        path, logging = self._folder / f"step_{step:012d}.mp4", self._config.logging
        rollouts = Rollouts(logging.video_episodes, logging.video_length, self._config.experiment.seed)
        try:
            with Video(path) as video:
                roll_out(self._config.environment, policy, rollouts, video, stopping)
        except OSError as problem:
            # Training is worth more than its video.
            self._note(f"no video at step {step:,}: {problem}")
            return None
        return path
