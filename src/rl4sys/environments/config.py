"""The ``environment`` block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from rl4sys.config import Config, Settings


class EnvironmentConfig(Config):
    """What to act in, and how it is prepared."""

    name: str
    """A Gymnasium id such as CartPole-v1, a task of the family `wrapper`, or the name a plugin registered."""
    wrapper: str = "gym"
    """The family of environments that `name` is looked up in: gym, dm_control, atari, goal, multigoal, pettingzoo; or
    live, for a system that a server trains for."""
    universe: str | None = None
    """With domain and task another way to write wrapper and name: {universe: gym, domain: HalfCheetah, task: v5}."""
    domain: str | None = None
    """First part of the name, where universe is used."""
    task: str | None = None
    """Second part of the name, where universe is used."""
    num_envs: int = Field(default=1, gt=0, le=4096)
    """Copies stepped together, each with its own random numbers."""
    vectorized: Literal["envpool"] | None = None
    """Step all copies in C++ threads (envpool, where it has the name): faster, but a resumed run begins new episodes,
    so it is not exact; evaluation uses the plain environment of that name."""
    normalize_obs: bool = False
    """Shift and scale observations to mean 0 and deviation 1, each number and pixel by its own statistics, which are
    part of the policy."""
    normalize_reward: bool = False
    """Divide rewards by the deviation of the discounted return, for learning only."""
    clip_reward: float | None = Field(default=None, gt=0)
    """Clip each reward to -x..x, for learning only: returns are reported as they were; null for never (atari: 1)."""
    frame_stack: int = Field(default=1, gt=0, le=64)
    """Show the last so many observations together: on a new first axis, or as channels of colour images (atari: 4)."""
    observed: list[int] | None = Field(default=None, min_length=1)
    """Show only these elements of a flat observation, by number, such as [0, 2] for positions; null for all."""
    action_repeat: int = Field(default=1, gt=0, le=1000)
    """Give each action so many times and add up the rewards; all of it counts as one step."""
    rescale_actions: bool = False
    """Let the policy act in -1..1 whatever the bounds of the environment's continuous actions."""
    max_episode_steps: int | None = Field(default=None, gt=0)
    """Cut episodes after so many steps; null keeps the environment's own limit."""
    remake: bool = False
    """Make the environment anew for every episode: for those whose reset leaves something of the last one behind."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment when it is made, such as {continuous: true}; families other than gym have their own."""

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, settings: Any) -> Any:
        """Names in one form, and what a family does by custom, so that a stored config says all that applies."""
        if not isinstance(settings, Mapping):
            return settings
        named = _named(dict(settings))
        return {**_CUSTOMS.get(str(named.get("wrapper")), {}), **named}


_CUSTOMS: dict[str, Settings] = {
    "atari": {"frame_stack": 4, "clip_reward": 1.0},
    "multigoal": {"name": "multigoal"},
}
"""Settings of a family where the user gives none."""

_OTHER_NAMES = ("universe", "domain", "task")


def _named(settings: Settings) -> Settings:
    """Universe, domain and task turned into wrapper and name."""
    universe, domain, task = (settings.pop(key, None) for key in _OTHER_NAMES)
    if universe is domain is task is None:
        return settings
    if domain is None or task is None:
        raise ValueError("universe, domain and task go together, such as {universe: gym, domain: Hopper, task: v5}")
    name, wrapper = f"{domain}-{task}", str(universe or settings.get("wrapper", "gym"))
    for key, meant in (("name", name), ("wrapper", wrapper)):
        if settings.get(key, meant) != meant:
            raise ValueError(f"{key} says {settings[key]!r} and universe, domain, task say {meant!r}; remove one")
    return {**settings, "name": name, "wrapper": wrapper}
