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
from rl4sys.environments.mujoco import choose_renderer, log_mujoco_warnings_once
from rl4sys.errors import ConfigError
from rl4sys.spec import Array


class DMControlOptions(Config):
    """Options of environments of the DeepMind control suite."""

    flatten: bool = True
    """Concatenate all observations to one vector; false keeps them as a dict."""
    pixels: bool = False
    """Observe a camera image instead of positions and velocities."""
    image_size: int = Field(default=84, gt=0, le=4096)
    """Height and width of the observed image in pixels."""
    camera: int | str = 0
    """Number or name of the camera."""
    video_size: int = Field(default=480, gt=0, le=4096)
    """Height and width of video frames in pixels."""
    task: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the task, such as {time_limit: 10}."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the suite's environment, such as {control_timestep: 0.02}."""


def make_dm_control(config: EnvironmentConfig) -> Environment:
    """Create the environment of a control suite task. ``config.name`` is domain-task, such as cheetah-run."""
    choose_renderer(otherwise="off")
    from dm_control import suite

    log_mujoco_warnings_once()
    options = parse(DMControlOptions, config.options, "environment.options")
    domain, _, task = config.name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        known = ["-".join(pair) for pair in suite.ALL_TASKS]
        raise ConfigError(
            f"environment.name is {config.name!r}, which is not a task of the control suite"
            f"{did_you_mean(config.name, known)} Known: {', '.join(known)}."
        )
    loaded = suite.load(domain, task, task_kwargs=dict(options.task), environment_kwargs=dict(options.environment))
    return DMControl(loaded, config.name, options)


class DMControl(gymnasium.Env[Any, Any]):
    """Gymnasium adapter of a control suite task. The task has one random generator, so a seed determines an episode."""

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
        time_step = self._environment.step(action)
        # In dm_env, a truncated episode ends with a nonzero discount.
        terminated = time_step.last() and time_step.discount == 0
        truncated = time_step.last() and time_step.discount != 0
        return self._observe(time_step.observation), float(time_step.reward), bool(terminated), bool(truncated), {}

    def render(self) -> Array:
        """Render an image for videos; its size is ``video_size``, not the size of image observations."""
        return self._render_image(self._options.video_size)

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

    def _render_image(self, size: int) -> Array:
        image: Array = self._environment.physics.render(size, size, camera_id=self._options.camera)
        return image

    def _observe(self, observation: Mapping[str, Any]) -> Any:
        if self._options.pixels:
            return self._render_image(self._options.image_size)
        parts = {name: np.atleast_1d(value).astype(np.float32) for name, value in observation.items()}
        return np.concatenate([part.ravel() for part in parts.values()]) if self._options.flatten else parts


def _unbounded(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _spec(name: str, environment: Any) -> Any:
    steps = environment._step_limit
    return limit_spec(f"dm_control-{name}", int(steps)) if np.isfinite(steps) else None
