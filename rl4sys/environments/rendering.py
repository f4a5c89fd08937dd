"""Rollouts of a policy with rendering: every frame is written to a video or shown in a window."""

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
from rl4sys.environments.actor_factory import make_evaluation_actor
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluation import Evaluation, EvaluationStopped
from rl4sys.environments.families.pettingzoo import MultiAgentActor
from rl4sys.environments.mujoco import choose_renderer
from rl4sys.errors import ConfigError
from rl4sys.policy.base import Policy
from rl4sys.spec import Array

WINDOW: Literal["window"] = "window"
_ALWAYS_RENDERED = ("dm_control", "multigoal", "goal")
"""Environment families that can render without a ``render_mode`` option."""
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_DEFAULT_RATE = 30
_ATARI_RATE, _ATARI_FRAMES = 60, 4


class Screen(Protocol):
    """Receiver of rendered frames."""

    def show(self, frame: Array, frames_per_second: float) -> None:
        """Show the next frame at the given frame rate."""


View: TypeAlias = Screen | Literal["window"]
"""Destination of rendered frames: a `Screen` or a window."""


@dataclass(frozen=True)
class Rollouts:
    """Number, maximum length and seed of the episodes to play.

    With the same seed, an evaluation starts with the same episodes.
    """

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
    """Play whole episodes one after another and render them; a multi-agent episode gives one result per agent."""
    actor = _make_actor(config, rollouts, view)
    finished: list[Episode] = []
    ended = 0
    try:
        while ended < rollouts.number:
            if stopping():
                raise EvaluationStopped
            actor.collect(policy, version=0, steps=1)
            just_ended = actor.take_finished()
            finished += just_ended
            ended += bool(just_ended)
    finally:
        actor.close()
    return Evaluation(tuple(finished))


def check_renderable(config: EnvironmentConfig) -> None:
    """Raise ConfigError if the environment cannot be rendered for a video."""
    _make_actor(config, Rollouts(number=1, max_length=1, seed=0), _NullScreen()).close()


def check_display() -> None:
    """Raise ConfigError if no window can be opened."""
    if sys.platform.startswith("linux") and not any(name in os.environ for name in _DISPLAYS):
        raise ConfigError(
            "a window needs a display, but this machine has none (DISPLAY is not set); write a video instead: "
            "--video FILE.mp4"
        )


def _make_actor(config: EnvironmentConfig, rollouts: Rollouts, view: View | None) -> Actor | MultiAgentActor:
    choose_renderer()
    seeds = np.random.SeedSequence([rollouts.seed, 1])
    return make_evaluation_actor(
        _with_render_mode(_limited(config, rollouts.max_length), view),
        seeds,
        lambda environment: _with_view(environment, config, rollouts.max_length, view),
    )


def _limited(config: EnvironmentConfig, steps: int) -> EnvironmentConfig:
    """Set the step limit of a multi-agent environment in its config, because TimeLimit cannot wrap it."""
    if config.family != "pettingzoo":
        return config
    return config.model_copy(update={"max_episode_steps": min(config.max_episode_steps or steps, steps)})


def _with_render_mode(config: EnvironmentConfig, view: View | None) -> EnvironmentConfig:
    if view is None or config.family in _ALWAYS_RENDERED:
        return config
    mode = "human" if view == WINDOW else "rgb_array"
    return config.model_copy(update={"options": {**config.options, "render_mode": mode}})


def _with_view(environment: Any, config: EnvironmentConfig, steps: int, view: View | None) -> Any:
    """Wrap the environment so that it renders to ``view``; limit single-agent episodes to ``steps`` steps."""
    if view == WINDOW:
        environment = _show_in_window(environment, config.name)
    elif view is not None:
        wrapper = _RenderedMultiAgent if config.family == "pettingzoo" else _Rendered
        environment = wrapper(environment, _Camera(config.name, _rate(environment, config), view))
    return environment if config.family == "pettingzoo" else TimeLimit(environment, steps)


def _show_in_window(environment: Any, name: str) -> Any:
    if environment.render_mode == "rgb_array":
        return HumanRendering(environment)
    if environment.render_mode != "human":
        raise ConfigError(f"{name!r} cannot be rendered: it has no render mode")
    return environment


def _rate(environment: Any, config: EnvironmentConfig) -> float:
    """Return the frame rate for real-time playback with one frame per step of the policy."""
    rate, frames = environment.metadata.get("render_fps") or _DEFAULT_RATE, 1
    if config.family == "atari":
        rate, frames = _ATARI_RATE, config.options.get("frame_skip", _ATARI_FRAMES)
    return float(rate) / (frames * config.action_repeat)


class _NullScreen:
    """Screen that discards all frames; used to test if an environment can be rendered."""

    def show(self, frame: Array, frames_per_second: float) -> None:
        """Discard the frame."""


class _Camera:
    """Sends frames to a screen. The frame of a reset is sent only when the first step of the episode follows."""

    def __init__(self, name: str, rate: float, screen: Screen) -> None:
        self._name, self._rate, self._screen = name, rate, screen
        self._first: Array | None = None

    def on_reset(self, render: Callable[[], Any]) -> None:
        self._first = self._render(render)

    def on_step(self, render: Callable[[], Any]) -> None:
        if self._first is not None:
            self._screen.show(self._first, self._rate)
            self._first = None
        self._screen.show(self._render(render), self._rate)

    def _render(self, render: Callable[[], Any]) -> Array:
        try:
            frame = render()
        except Exception as problem:
            # Environments and renderers are third-party code and may raise any exception.
            raise ConfigError(f"{self._name!r} cannot be rendered: {problem!r}") from problem
        if not isinstance(frame, np.ndarray):
            raise ConfigError(
                f"{self._name!r} cannot be rendered: its render() returns {type(frame).__name__}, not an image"
            )
        return frame


class _Rendered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment wrapper that renders every step."""

    def __init__(self, environment: Environment, camera: _Camera) -> None:
        super().__init__(environment)
        self._camera = camera

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        first = self.env.reset(seed=seed, options=options)
        self._camera.on_reset(self.env.render)
        return first

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._camera.on_step(self.env.render)
        return result


class _RenderedMultiAgent:
    """Multi-agent environment wrapper that renders every step."""

    def __init__(self, environment: Any, camera: _Camera) -> None:
        self._environment, self._camera = environment, camera

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, seed: int | None = None) -> Any:
        first = self._environment.reset(seed=seed)
        self._camera.on_reset(self._environment.render)
        return first

    def step(self, actions: dict[Any, Any]) -> Any:
        result = self._environment.step(actions)
        self._camera.on_step(self._environment.render)
        return result
