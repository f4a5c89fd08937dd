"""The ``environment`` block."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rl4sys.config import Config


class EnvironmentConfig(Config):
    """What to act in, and how it is prepared."""

    name: str
    """A Gymnasium id such as CartPole-v1, or the name a plugin registered."""
    wrapper: str = "gym"
    """The family of environments that `name` is looked up in: gym; or live, for a system that a server trains for."""
    num_envs: int = Field(default=1, gt=0, le=4096)
    """Copies stepped together, each with its own random numbers."""
    normalize_obs: bool = False
    """Shift and scale observations to mean 0 and deviation 1, by statistics that are part of the policy."""
    normalize_reward: bool = False
    """Divide rewards by the deviation of the discounted return, for learning only."""
    max_episode_steps: int | None = Field(default=None, gt=0)
    """Cut episodes after so many steps; null keeps the environment's own limit."""
    remake: bool = False
    """Make the environment anew for every episode: for those whose reset leaves something of the last one behind."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment when it is made, such as {continuous: true}."""
