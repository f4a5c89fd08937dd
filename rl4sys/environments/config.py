"""Config of the ``environment`` block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from rl4sys.config import Config, Settings


class WrapperConfig(Config):
    """Wrapper around an environment, with the keyword arguments of its constructor."""

    name: str
    """A class, such as gymnasium.wrappers:RescaleObservation or my_module:MyWrapper, or a registered name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the wrapper, in addition to the environment."""

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, settings: Any) -> Any:
        """Accept a name alone for a wrapper without options."""
        return {"name": settings} if isinstance(settings, str) else settings


class EnvironmentConfig(Config):
    """Environment and the wrappers around it."""

    name: str
    """A Gymnasium id such as CartPole-v1, a task of `family`, a class or function as module:name, or a name registered
    by a plugin."""
    family: str = "gym"
    """Environment family that `name` belongs to: gym, dm_control, atari, goal, multigoal, pettingzoo; or live, for a
    system trained by a server. The earlier name `wrapper` of this setting is also accepted."""
    universe: str | None = None
    """Alternative to family and name, with domain and task: {universe: gym, domain: HalfCheetah, task: v5}."""
    domain: str | None = None
    """First part of the environment name, such as HalfCheetah; requires `task`."""
    task: str | None = None
    """Second part of the environment name, such as v5; requires `domain`."""
    num_envs: int = Field(default=1, gt=0, le=4096)
    """Number of environment copies, each with its own seed."""
    vectorized: Literal["envpool"] | None = None
    """Step all copies in C++ threads with envpool, for environments that envpool provides. Faster, but a resumed run
    starts new episodes, so resume is not exact. Evaluation does not use envpool."""
    normalize_obs: bool = False
    """Normalize each observation element to mean 0 and standard deviation 1; the statistics are part of the policy."""
    normalize_reward: bool = False
    """Divide rewards by the standard deviation of the discounted return, for learning only."""
    clip_reward: float | None = Field(default=None, gt=0)
    """Maximum absolute reward for learning; larger rewards are clipped. Reported returns are not clipped. null disables
    clipping (default for atari: 1)."""
    frame_stack: int = Field(default=1, gt=0, le=64)
    """Number of stacked observations: on a new first axis, or as channels of color images (default for
    atari: 4)."""
    observed: list[int] | None = Field(default=None, min_length=1)
    """Indices of the elements of a flat observation to keep, such as [0, 2] for positions; null keeps all."""
    action_repeat: int = Field(default=1, gt=0, le=1000)
    """Number of times each action is repeated; rewards are summed, and the repetitions count as one step."""
    rescale_actions: bool = False
    """Rescale continuous actions to -1..1 for the policy."""
    max_episode_steps: int | None = Field(default=None, gt=0)
    """Truncate episodes after this many steps; null keeps the environment's own limit."""
    wrappers: list[WrapperConfig] = Field(default_factory=list)
    """Wrappers of your own, the innermost first, such as [my_module:MyWrapper] or [{name: mine, options: {scale: 2}}].
    They are applied before the settings above."""
    remake: bool = False
    """Create a new environment for every episode; needed if reset() does not clear all state."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment, such as {continuous: true}; families other than gym define their own
    options."""

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, settings: Any) -> Any:
        """Normalize the name and add the defaults of the family, so that a stored config is complete."""
        if not isinstance(settings, Mapping):
            return settings
        resolved = _resolve_name(_renamed(dict(settings)))
        return {**_FAMILY_DEFAULTS.get(str(resolved.get("family")), {}), **resolved}


_FAMILY_DEFAULTS: dict[str, Settings] = {
    "atari": {"frame_stack": 4, "clip_reward": 1.0},
    "multigoal": {"name": "multigoal"},
}
"""Default settings per family."""

_NAME_PARTS = ("universe", "domain", "task")


def _renamed(settings: Settings) -> Settings:
    """Return the settings with the earlier name `wrapper` replaced by `family`."""
    if "wrapper" not in settings:
        return settings
    family = settings.pop("wrapper")
    if settings.get("family", family) != family:
        raise ValueError(
            f"family is {settings['family']!r}, but wrapper, the earlier name of family, is {family!r}; remove wrapper"
        )
    return {**settings, "family": family}


def _resolve_name(settings: Settings) -> Settings:
    """Convert universe, domain and task to family and name."""
    universe, domain, task = (settings.pop(key, None) for key in _NAME_PARTS)
    if universe is domain is task is None:
        return settings
    if domain is None or task is None:
        raise ValueError("domain and task must be given together, such as {universe: gym, domain: Hopper, task: v5}")
    name, family = f"{domain}-{task}", str(universe or settings.get("family", "gym"))
    for key, value in (("name", name), ("family", family)):
        if settings.get(key, value) != value:
            raise ValueError(
                f"{key} is {settings[key]!r}, but universe, domain and task give {value!r}; remove one of them"
            )
    return {**settings, "name": name, "family": family}
