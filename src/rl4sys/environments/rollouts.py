"""Policies at work, seen: whole episodes, of which every picture goes to a video or a window."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium.wrappers import HumanRendering, TimeLimit

from rl4sys.environments.actor import Actor, Episode
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluate import Evaluation, EvaluationStopped, make_judging_actor
from rl4sys.environments.renderer import choose_renderer
from rl4sys.environments.team import TeamActor
from rl4sys.errors import ConfigError
from rl4sys.policy.base import Policy
from rl4sys.spec import Array

WINDOW: Literal["window"] = "window"
_ALWAYS_DRAWN = ("dm_control", "multigoal", "goal")
"""Families whose environments give pictures without being told so when they are made."""
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_USUAL_RATE = 30
_ATARI_RATE, _ATARI_FRAMES = 60, 4


class Screen(Protocol):
    """Where pictures go."""

    def show(self, picture: Array, per_second: float) -> None:
        """The next picture, of so many a second."""


View: TypeAlias = Screen | Literal["window"]
"""How rollouts are seen."""


@dataclass(frozen=True)
class Rollouts:
    """How many episodes, of how many steps at most, from which seed: those that an evaluation begins with."""

    number: int
    max_length: int
    seed: int


def roll_out(
    config: EnvironmentConfig,
    policy: Policy,
    rollouts: Rollouts,
    view: View | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Whole episodes, one after the other; of a team, those of each of its agents."""
    actor = _make_actor(config, rollouts, view)
    finished: list[Episode] = []
    ended = 0
    try:
        while ended < rollouts.number:
            if stopping():
                raise EvaluationStopped
            actor.collect(policy, version=0, steps=1)
            ending = actor.take_finished()
            finished += ending
            ended += bool(ending)
    finally:
        actor.close()
    return Evaluation(tuple(finished))


def check_drawable(config: EnvironmentConfig) -> None:
    """A `ConfigError` where there would be no pictures for a video."""
    _make_actor(config, Rollouts(number=1, max_length=1, seed=0), _Nowhere()).close()


def check_display() -> None:
    """A `ConfigError` where no window can be opened."""
    if sys.platform.startswith("linux") and not any(name in os.environ for name in _DISPLAYS):
        raise ConfigError(
            "a window needs a display, and this machine has none (DISPLAY is not set); write a video instead: "
            "--video FILE.mp4"
        )


def _make_actor(config: EnvironmentConfig, rollouts: Rollouts, view: View | None) -> Actor | TeamActor:
    choose_renderer()
    seeds = np.random.SeedSequence([rollouts.seed, 1])
    return make_judging_actor(
        _told_to_draw(_cut(config, rollouts.max_length), view),
        seeds,
        lambda environment: _seen(environment, config, rollouts.max_length, view),
    )


def _cut(config: EnvironmentConfig, steps: int) -> EnvironmentConfig:
    """A team cuts its own episodes."""
    if config.wrapper != "pettingzoo":
        return config
    return config.model_copy(update={"max_episode_steps": min(config.max_episode_steps or steps, steps)})


def _told_to_draw(config: EnvironmentConfig, view: View | None) -> EnvironmentConfig:
    if view is None or config.wrapper in _ALWAYS_DRAWN:
        return config
    mode = "human" if view == WINDOW else "rgb_array"
    return config.model_copy(update={"options": {**config.options, "render_mode": mode}})


def _seen(environment: Any, config: EnvironmentConfig, steps: int, view: View | None) -> Any:
    """The environment with the view opened on it, and its episodes cut after so many steps."""
    if view == WINDOW:
        environment = _in_window(environment, config.name)
    elif view is not None:
        watched = _WatchedTeam if config.wrapper == "pettingzoo" else _Watched
        environment = watched(environment, _Camera(config.name, _rate(environment, config), view))
    return environment if config.wrapper == "pettingzoo" else TimeLimit(environment, steps)


def _in_window(environment: Any, name: str) -> Any:
    if environment.render_mode == "rgb_array":
        return HumanRendering(environment)
    if environment.render_mode != "human":
        raise ConfigError(f"{name} cannot be drawn: it has no render mode")
    return environment


def _rate(environment: Any, config: EnvironmentConfig) -> float:
    """Pictures in a second, one for each of the policy's steps, if the system is to move as fast as it does."""
    rate, frames = environment.metadata.get("render_fps") or _USUAL_RATE, 1
    if config.wrapper == "atari":
        rate, frames = _ATARI_RATE, config.options.get("frame_skip", _ATARI_FRAMES)
    return float(rate) / (frames * config.action_repeat)


class _Nowhere:
    """A screen for trying whether there is anything to show."""

    def show(self, picture: Array, per_second: float) -> None:
        """Nothing is kept."""


class _Camera:
    """Follows an episode from its first picture to its last; one that is begun and not gone on with is not shown."""

    def __init__(self, name: str, rate: float, screen: Screen) -> None:
        self._name, self._rate, self._screen = name, rate, screen
        self._first: Array | None = None

    def begin(self, render: Callable[[], Any]) -> None:
        self._first = self._take(render)

    def follow(self, render: Callable[[], Any]) -> None:
        if self._first is not None:
            self._screen.show(self._first, self._rate)
            self._first = None
        self._screen.show(self._take(render), self._rate)

    def _take(self, render: Callable[[], Any]) -> Array:
        try:
            picture = render()
        except Exception as problem:
            # Environments are other people's code, and so is what draws them.
            raise ConfigError(f"{self._name} cannot be drawn: {problem!r}") from problem
        if not isinstance(picture, np.ndarray):
            raise ConfigError(f"{self._name} cannot be drawn: its render() gives {type(picture).__name__}, no picture")
        return picture


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with a camera on it."""

    def __init__(self, environment: Environment, camera: _Camera) -> None:
        super().__init__(environment)
        self._camera = camera

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        shown = self.env.reset(seed=seed, options=options)
        self._camera.begin(self.env.render)
        return shown

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._camera.follow(self.env.render)
        return result


class _WatchedTeam:
    """An environment of several agents with a camera on it."""

    def __init__(self, environment: Any, camera: _Camera) -> None:
        self._environment, self._camera = environment, camera

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, seed: int | None = None) -> Any:
        shown = self._environment.reset(seed=seed)
        self._camera.begin(self._environment.render)
        return shown

    def step(self, actions: dict[Any, Any]) -> Any:
        result = self._environment.step(actions)
        self._camera.follow(self._environment.render)
        return result
