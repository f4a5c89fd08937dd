"""Multi-goal environment of the soft Q-learning paper, a test of multimodal policies (Haarnoja et al. 2017)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from rl4sys.config import Config, parse
from rl4sys.environments.base import Environment, limited
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.plane import draw_plane
from rl4sys.spec import Array

GOALS = np.array([[5, 0], [-5, 0], [0, 5], [0, -5]], np.float32)
EDGE = 7.0
"""The plane extends from -EDGE to EDGE on both axes."""
_NEAR = 1.0
_STEPS = 30


class MultiGoalOptions(Config):
    """Options of the multi-goal environment; the defaults are those of the paper."""

    goal_reward: float = 10.0
    """Reward for coming within distance 1 of a goal, which terminates the episode."""
    action_cost: float = 30.0
    """Coefficient of the squared action norm."""
    distance_cost: float = 1.0
    """Coefficient of the squared distance to the nearest goal."""
    start_deviation: float = Field(default=0.1, ge=0)
    """Standard deviation of the start position around the center."""


def make_multigoal(config: EnvironmentConfig) -> Environment:
    environment = MultiGoal(parse(MultiGoalOptions, config.options, "environment.options"))
    return environment if config.max_episode_steps is not None else limited(environment, "multigoal", _STEPS)


class MultiGoal(gymnasium.Env[Any, Any]):
    """Environment in which actions move a point on a plane to one of four goals with equal reward."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, options: MultiGoalOptions) -> None:
        self._options = options
        self._position = np.zeros(2, np.float32)
        self._path = [self._position]
        self.render_mode = "rgb_array"
        self.observation_space = spaces.Box(-EDGE, EDGE, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = _clipped(self._options.start_deviation * self.np_random.normal(size=2))
        self._path = [self._position]
        return self._position.copy(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        action = np.clip(action, -1, 1)
        self._position = _clipped(self._position + action)
        self._path.append(self._position)
        squared = squared_distances(self._position)
        reached = bool(squared < _NEAR**2)
        cost = self._options.action_cost * float(action @ action) + self._options.distance_cost * float(squared)
        return self._position.copy(), self._options.goal_reward * reached - cost, reached, False, {}

    def render(self) -> Array:
        """Draw the path of the current episode."""
        return draw_plane(self._path, GOALS, edge=EDGE, near=_NEAR)


def squared_distances(positions: Array) -> Array:
    """Return the squared distance of each position to its nearest goal."""
    return np.asarray(((positions[..., None, :] - GOALS) ** 2).sum(-1).min(-1))


def _clipped(position: Array) -> Array:
    return np.clip(position, -EDGE, EDGE).astype(np.float32)
