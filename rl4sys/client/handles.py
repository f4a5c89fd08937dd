"""Objects that the client API returns to the host program: actions, trajectories and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl4sys.client.episode import Episode
from rl4sys.errors import NumericalError


class RL4SysAction:
    """Decision for one observation: the action for the host program, with data for the learner."""

    __slots__ = ("_episode", "_step", "act", "fallback_reason", "log_prob", "reward", "version")

    def __init__(self, episode: Episode | None, act: Any, log_prob: float | None, version: int | None) -> None:
        self._episode = episode
        self._step: int | None = None
        self.act = act
        """Action for the host program: an int, an int array (MultiDiscrete), or an array within the bounds (Box)."""
        self.log_prob = log_prob
        """Log-probability of the sampled action, before clipping to the bounds; None for a fallback action."""
        self.version = version
        """Version of the policy that selected the action; None for a fallback action."""
        self.reward: float | None = None
        """Last value passed to `update_reward`; None before the first call."""
        self.fallback_reason: str | None = None
        """Reason for a fallback action; None if the policy selected the action."""

    def update_reward(self, reward: float) -> None:
        """Set or replace the reward of this step. Possible until its trajectory ends or is cut.

        Later rewards are ignored and counted in `Statistics.late_rewards`. Raises `NumericalError` if ``reward`` is not
        finite.
        """
        step = self._step
        if step is None:
            if not math.isfinite(reward):
                raise NumericalError(f"a reward must be a finite number, got {reward}")
        elif not self._episode.reward(step, reward):  # type: ignore[union-attr]  # an action with a step has an episode
            self._episode.on_late_reward()  # type: ignore[union-attr]
        self.reward = reward

    def __repr__(self) -> str:
        why = f", fallback_reason={self.fallback_reason!r}" if self.fallback_reason else ""
        return f"RL4SysAction(act={self.act!r}, version={self.version}, reward={self.reward}{why})"


class RL4SysTrajectory:
    """Handle of the episode in progress. The same handle can be used for the next episode."""

    __slots__ = ("_abandon", "_episode")

    def __init__(self, abandon: Callable[[Episode], None]) -> None:
        self._abandon = abandon
        self._episode: Episode | None = None

    def __del__(self) -> None:
        # The episode cannot continue without its handle, but its steps can be used for training.
        if self._episode is not None:
            self._abandon(self._episode)

    def __repr__(self) -> str:
        episode = self._episode
        if episode is None:
            return "RL4SysTrajectory(no episode in progress)"
        steps = episode.recorder.offset + episode.recorder.steps
        return f"RL4SysTrajectory(episode={episode.number}, steps={steps}, version={episode.version})"


@dataclass(frozen=True)
class Statistics:
    """Counters of a client since its creation."""

    decisions: int
    """Number of recorded steps and fallback decisions."""
    fallback_decisions: int
    version: int | None
    """Version of the newest model received; None before the first model."""
    versions_adopted: int
    """Number of different models that decisions have used so far."""
    steps_sent: int
    """Number of steps sent, including steps sent again after a lost connection."""
    steps_acknowledged: int
    """Number of steps that the server has stored on disk."""
    steps_waiting: int
    """Number of steps not yet sent, or sent and not yet acknowledged."""
    dropped_steps: int
    """Number of steps dropped, for example because the outbox and the spool were full."""
    late_rewards: int
    trajectories_refused: int
    connected: bool
    last_problem: str | None
