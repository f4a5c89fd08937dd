"""Goal-conditioned tasks in the convention of Gymnasium-Robotics, and their goal reward.

Observations have three parts: ``observation``, ``achieved_goal`` and ``desired_goal``. ``compute_reward(achieved,
desired, info)`` takes one goal per row, so that hindsight replay can relabel transitions with other goals.
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
_IMAGE_WIDTH, _BIT_HEIGHT = 480, 160


def goal_reward(environment: Environment) -> Callable[[Array, Array], Array] | None:
    """Return a function that computes rewards from rows of achieved and desired goals; None for tasks without goals."""
    compute = getattr(environment.unwrapped, "compute_reward", None)
    space = environment.observation_space
    if compute is None or not isinstance(space, spaces.Dict) or "desired_goal" not in space.spaces:
        return None
    return lambda achieved, desired: np.asarray(compute(achieved, desired, {}), np.float32)


class BitFlipOptions(Config):
    """Options of the `BitFlip` task."""

    bits: int = Field(default=8, gt=0, le=1024)
    """Number of bits; also the step limit of an episode."""


class PointReachOptions(Config):
    """Options of the `PointReach` task."""

    distance: float = Field(default=0.1, gt=0)
    """Maximum distance to the goal for reward 0. Positions are in -1..1; a step moves at most 0.1 per axis."""


def make_goal(config: EnvironmentConfig) -> Environment:
    """Create the environment of the task ``config.name``: BitFlip or PointReach."""
    if config.name not in _TASKS:
        raise ConfigError(
            f"environment.name is {config.name!r}, which is not a goal task{did_you_mean(config.name, _TASKS)} "
            f"Known: {', '.join(_TASKS)}."
        )
    environment, steps = _TASKS[config.name](config)
    return environment if config.max_episode_steps is not None else limited(environment, config.name, steps)


class _GoalTask(gymnasium.Env[Any, Any]):
    """Base class of tasks whose state is the achieved goal; the reward of a step is 0 at the goal and -1 elsewhere."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, goals: spaces.Box) -> None:
        self.render_mode = "rgb_array"
        self._state = self._goal = np.zeros(goals.shape, np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({name: goals for name in names})

    def _observation(self) -> dict[str, Array]:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }


class BitFlip(_GoalTask):
    """Flip one bit per step to reach a target bit vector (Andrychowicz et al. 2017); terminates at the target."""

    def __init__(self, options: BitFlipOptions) -> None:
        super().__init__(spaces.Box(0, 1, (options.bits,), np.float32))
        self.action_space = spaces.Discrete(options.bits)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(0, 2, (2, *self._state.shape)).astype(np.float32)
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._state[action] = 1 - self._state[action]
        reward = float(self.compute_reward(self._state, self._goal, {}))
        return self._observation(), reward, reward == 0, False, {}

    def render(self) -> Array:
        """Draw the current bits above the target bits."""
        rows = np.where(np.stack([self._state, self._goal]) > 0, _DARK, _LIGHT).astype(np.uint8)
        image = np.repeat(np.repeat(rows, _BIT_HEIGHT, axis=0), _IMAGE_WIDTH // self._state.size or 1, axis=1)
        return np.repeat(image[..., None], 3, axis=-1)

    def compute_reward(self, achieved: Array, desired: Array, info: Any) -> Array:
        return np.where((achieved == desired).all(-1), np.float32(0), np.float32(-1))


class PointReach(_GoalTask):
    """Move a point on a plane to a random goal and keep it there until the step limit."""

    def __init__(self, options: PointReachOptions) -> None:
        super().__init__(spaces.Box(-1, 1, (2,), np.float32))
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self._distance = options.distance
        self._path = [self._state]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._path = [self._state]
        return self._observation(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        moved = self._state + _STEP_LENGTH * np.clip(action, -1, 1)
        self._state = np.clip(moved, -1, 1).astype(np.float32)
        self._path.append(self._state)
        return self._observation(), float(self.compute_reward(self._state, self._goal, {})), False, False, {}

    def render(self) -> Array:
        """Draw the path of the current episode."""
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
