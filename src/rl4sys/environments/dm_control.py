"""The DeepMind control suite as Gymnasium environments (Tassa et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from rl4sys.config import Config, did_you_mean, parse
from rl4sys.environments.base import Environment, limit_spec
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.mujoco_log import tell_mujoco_warnings_once
from rl4sys.environments.renderer import choose_renderer
from rl4sys.errors import ConfigError
from rl4sys.spec import Array


class DMControlOptions(Config):
    """``options`` of the family ``dm_control``."""

    flatten: bool = True
    """All observations as one vector; false keeps each under its name."""
    pixels: bool = False
    """See the image of a camera instead of positions and velocities."""
    image_size: int = Field(default=84, gt=0, le=4096)
    """Height and width of the image."""
    camera: int | str = 0
    """Number or name of the camera."""
    video_size: int = Field(default=480, gt=0, le=4096)
    """Height and width of the pictures in videos."""
    task: dict[str, Any] = Field(default_factory=dict)
    """Passed to the task, such as {time_limit: 10}."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Passed to the suite's environment, such as {control_timestep: 0.02}."""


def make_dm_control(config: EnvironmentConfig) -> Environment:
    """The task that ``name`` (domain-task, such as cheetah-run) stands for."""
    choose_renderer(otherwise="off")
    from dm_control import suite

    tell_mujoco_warnings_once()
    options = parse(DMControlOptions, config.options, "environment.options")
    domain, _, task = config.name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        known = ["-".join(pair) for pair in suite.ALL_TASKS]
        raise ConfigError(
            f"environment.name is {config.name!r}, which is no task of the control suite"
            f"{did_you_mean(config.name, known)} Known: {', '.join(known)}."
        )
    loaded = suite.load(domain, task, task_kwargs=dict(options.task), environment_kwargs=dict(options.environment))
    return DMControl(loaded, config.name, options)


class DMControl(gymnasium.Env[Any, Any]):
    """A dm_env environment with a task that draws from one generator, so that a seed decides an episode."""

    def __init__(self, environment: Any, name: str, options: DMControlOptions) -> None:
        self._environment, self._options = environment, options
        self.render_mode = "rgb_array"
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / environment.control_timestep())}
        self.spec = _spec(name, environment)
        action = environment.action_spec()
        self.action_space = spaces.Box(action.minimum, action.maximum, action.shape, action.dtype)
        self.observation_space = self._make_space(environment.observation_spec())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._environment.task.random.seed(seed)
        return self._observe(self._environment.reset().observation), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        moment = self._environment.step(action)
        # An end at which the future still counts is a cut.
        terminated = moment.last() and moment.discount == 0
        truncated = moment.last() and moment.discount != 0
        return self._observe(moment.observation), float(moment.reward), bool(terminated), bool(truncated), {}

    def render(self) -> Array:
        """As a person wants to see it, which is larger than what a policy is shown."""
        return self._picture(self._options.video_size)

    def close(self) -> None:
        self._environment.close()

    def _make_space(self, parts: Mapping[str, Any]) -> spaces.Space[Any]:
        if self._options.pixels:
            size = self._options.image_size
            return spaces.Box(0, 255, (size, size, 3), np.uint8)
        shapes = {name: part.shape or (1,) for name, part in parts.items()}
        if self._options.flatten:
            return _unbounded((sum(int(np.prod(shape)) for shape in shapes.values()),))
        return spaces.Dict({name: _unbounded(shape) for name, shape in shapes.items()})

    def _picture(self, size: int) -> Array:
        image: Array = self._environment.physics.render(size, size, camera_id=self._options.camera)
        return image

    def _observe(self, observation: Mapping[str, Any]) -> Any:
        if self._options.pixels:
            return self._picture(self._options.image_size)
        parts = {name: np.atleast_1d(value).astype(np.float32) for name, value in observation.items()}
        return np.concatenate([part.ravel() for part in parts.values()]) if self._options.flatten else parts


def _unbounded(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _spec(name: str, environment: Any) -> Any:
    steps = environment._step_limit
    return limit_spec(f"dm_control-{name}", int(steps)) if np.isfinite(steps) else None
