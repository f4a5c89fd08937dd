"""Wrappers for the options of the ``environment`` block that apply to every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, RescaleAction, TimeLimit, TransformObservation

from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.provided import import_object
from rl4sys.errors import ConfigError
from rl4sys.registry import WRAPPERS
from rl4sys.spec import Array


def apply_wrappers(environment: Environment, config: EnvironmentConfig) -> Environment:
    """Apply the configured wrappers. The step limit counts steps of the policy, not repeated actions."""
    if config.action_repeat > 1:
        environment = ActionRepeat(environment, config.action_repeat)
    if config.max_episode_steps is not None:
        environment = TimeLimit(environment, config.max_episode_steps)
    if config.rescale_actions:
        environment = _rescale_actions(environment)
    if config.observed is not None:
        environment = _select_elements(environment, config.observed)
    return stack_frames(environment, config.frame_stack)


def apply_own_wrappers(environment: Environment, config: EnvironmentConfig) -> Environment:
    """Apply the wrappers in ``environment.wrappers``; the first one is the innermost."""
    for wrapper in config.wrappers:
        try:
            environment = _find_wrapper(wrapper.name)(environment, **wrapper.options)
        except TypeError as problem:
            raise ConfigError(
                f"environment.wrappers: {wrapper.name} does not accept the options {wrapper.options}: {problem}"
            ) from problem
    return environment


def _find_wrapper(name: str) -> Callable[..., Environment]:
    module, _, path = name.partition(":")
    found = import_object(module, path, "environment.wrappers") if path else None
    if found is not None:
        return found
    if path:
        raise ConfigError(f"environment.wrappers is {name!r}, but the module {module!r} has no {path!r}")
    component: Callable[..., Environment] = WRAPPERS.get(name)
    return component


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that repeats each action up to ``times`` times, until the episode ends, and sums the rewards."""

    def __init__(self, environment: Environment, times: int) -> None:
        super().__init__(environment)
        self._times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _select_elements(environment: Environment, elements: list[int]) -> Environment:
    space = environment.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not set(elements) <= set(range(space.shape[0])):
        raise ConfigError(
            f"environment.observed is {elements}, but the observations are {space}; expected indices of elements "
            "of a flat observation, counted from 0"
        )
    selected = spaces.Box(space.low[elements], space.high[elements], dtype=space.dtype.type)
    return TransformObservation(environment, lambda observation: observation[elements], selected)


def _rescale_actions(environment: Environment) -> Environment:
    space = environment.action_space
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f" or not space.is_bounded():
        raise ConfigError(
            f"environment.rescale_actions is true, but the actions are {space}; only a Box of floats with bounds on "
            "every element can be rescaled; remove the setting"
        )
    kind = space.dtype.type
    return RescaleAction(environment, kind(-1), kind(1))


def stack_frames(environment: Environment, frames: int) -> Environment:
    """Stack the last ``frames`` observations, oldest first; the first observation is repeated at the start."""
    if frames == 1:
        return environment
    stacked: Environment = FrameStackObservation(environment, frames)
    space = stacked.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 4:
        return stacked
    return TransformObservation(stacked, _as_channels, _box_of_channels(space))


def _as_channels(images: Array) -> Array:
    """Convert (frames, height, width, channels) to one image with the channels of all frames."""
    return np.concatenate(list(images), axis=-1)


def _box_of_channels(space: spaces.Box) -> spaces.Box:
    return spaces.Box(_as_channels(space.low), _as_channels(space.high), dtype=space.dtype.type)
