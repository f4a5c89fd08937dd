"""Tasks with goals, in Gymnasium-Robotics' convention, and the reward they give for any goal.

What is seen has three parts: ``observation``, ``achieved_goal`` and ``desired_goal``. ``compute_reward(achieved,
desired, info)`` takes goals row by row, so that experience can be learnt from as if another goal had been meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from rl4sys.config import Config, did_you_mean, parse
from rl4sys.environments.base import Environment, limited
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.plane import draw_plane
from rl4sys.errors import ConfigError
from rl4sys.spec import Array

_REACH_STEPS = 50
_STEP_LENGTH = 0.1
_DARK, _LIGHT = 40, 225
_PICTURE, _BIT_HEIGHT = 480, 160


def goal_reward(environment: Environment) -> Callable[[Array, Array], Array] | None:
    """The environment's reward as a function of achieved and desired goals, row by row; None where it has none."""
    compute = getattr(environment.unwrapped, "compute_reward", None)
    space = environment.observation_space
    if compute is None or not isinstance(space, spaces.Dict) or "desired_goal" not in space.spaces:
        return None
    return lambda achieved, desired: np.asarray(compute(achieved, desired, {}), np.float32)


class BitFlipOptions(Config):
    """``options`` of ``BitFlip``."""

    bits: int = Field(default=8, gt=0, le=1024)
    """How many bits there are; an episode is cut after as many steps."""


class PointReachOptions(Config):
    """``options`` of ``PointReach``."""

    distance: float = Field(default=0.1, gt=0)
    """How near counts as there; a step is at most 0.1 along each axis of a plane from -1 to 1."""


def make_goal(config: EnvironmentConfig) -> Environment:
    """BitFlip or PointReach."""
    if config.name not in _TASKS:
        raise ConfigError(
            f"environment.name is {config.name!r}, which is no goal task{did_you_mean(config.name, _TASKS)} "
            f"Known: {', '.join(_TASKS)}."
        )
    environment, steps = _TASKS[config.name](config)
    return environment if config.max_episode_steps is not None else limited(environment, config.name, steps)


class _GoalTask(gymnasium.Env[Any, Any]):
    """A state that is also what was achieved, and a goal of the same shape; -1 a step until the goal is reached."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, goals: spaces.Box) -> None:
        self.render_mode = "rgb_array"
        self._state = self._goal = np.zeros(goals.shape, np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({name: goals for name in names})

    def _show(self) -> dict[str, Array]:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }


class BitFlip(_GoalTask):
    """Turn one row of bits into another, one bit a step (Andrychowicz et al. 2017); ends when they are the same."""

    def __init__(self, options: BitFlipOptions) -> None:
        super().__init__(spaces.Box(0, 1, (options.bits,), np.float32))
        self.action_space = spaces.Discrete(options.bits)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(0, 2, (2, *self._state.shape)).astype(np.float32)
        return self._show(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._state[action] = 1 - self._state[action]
        reward = float(self.compute_reward(self._state, self._goal, {}))
        return self._show(), reward, reward == 0, False, {}

    def render(self) -> Array:
        """The bits as they are, above those that are wanted."""
        rows = np.where(np.stack([self._state, self._goal]) > 0, _DARK, _LIGHT).astype(np.uint8)
        picture = np.repeat(np.repeat(rows, _BIT_HEIGHT, axis=0), _PICTURE // self._state.size or 1, axis=1)
        return np.repeat(picture[..., None], 3, axis=-1)

    def compute_reward(self, achieved: Array, desired: Array, info: Any) -> Array:
        return np.where((achieved == desired).all(-1), np.float32(0), np.float32(-1))


class PointReach(_GoalTask):
    """Move a point of the plane to a place drawn for each episode, and stay there."""

    def __init__(self, options: PointReachOptions) -> None:
        super().__init__(spaces.Box(-1, 1, (2,), np.float32))
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self._distance = options.distance
        self._path = [self._state]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._path = [self._state]
        return self._show(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        moved = self._state + _STEP_LENGTH * np.clip(action, -1, 1)
        self._state = np.clip(moved, -1, 1).astype(np.float32)
        self._path.append(self._state)
        return self._show(), float(self.compute_reward(self._state, self._goal, {})), False, False, {}

    def render(self) -> Array:
        """Where it went in this episode."""
        return draw_plane(self._path, self._goal[None], edge=1.0, near=self._distance)

    def compute_reward(self, achieved: Array, desired: Array, info: Any) -> Array:
        near = np.linalg.norm(achieved - desired, axis=-1) <= self._distance
        return np.where(near, np.float32(0), np.float32(-1))


def _make_bit_flip(config: EnvironmentConfig) -> tuple[Environment, int]:
    options = parse(BitFlipOptions, config.options, "environment.options")
    return BitFlip(options), options.bits


def _make_point_reach(config: EnvironmentConfig) -> tuple[Environment, int]:
    return PointReach(parse(PointReachOptions, config.options, "environment.options")), _REACH_STEPS


_TASKS: dict[str, Callable[[EnvironmentConfig], tuple[Environment, int]]] = {
    "BitFlip": _make_bit_flip,
    "PointReach": _make_point_reach,
}
