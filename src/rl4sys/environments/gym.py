"""Gymnasium environments by id, or registered ones by name."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
from gymnasium.wrappers import TimeLimit

from rl4sys.config import did_you_mean
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError, MissingExtraError
from rl4sys.registry import ENVIRONMENTS

Environment: TypeAlias = gymnasium.Env[Any, Any]


def make_environment(config: EnvironmentConfig) -> Environment:
    """One environment: the registered component of that name, else one of the family ``wrapper``."""
    maker = ENVIRONMENTS.get(config.name if config.name in ENVIRONMENTS else config.wrapper)
    environment: Environment = maker(config)
    if config.max_episode_steps is not None and maker is not make_gym:
        environment = TimeLimit(environment, config.max_episode_steps)
    return environment


def make_gym(config: EnvironmentConfig) -> Environment:
    """A Gymnasium environment; never with a render mode, which slows some to less than half."""
    try:
        return gymnasium.make(
            config.name, max_episode_steps=config.max_episode_steps, disable_env_checker=True, **config.options
        )
    except gymnasium.error.DependencyNotInstalled as problem:
        raise MissingExtraError(f"environment {config.name!r} needs a package that is missing: {problem}") from problem
    except (gymnasium.error.Error, ModuleNotFoundError) as problem:
        known = list(gymnasium.registry)
        raise ConfigError(
            f"environment.name is {config.name!r}, which Gymnasium cannot make{did_you_mean(config.name, known)} "
            f"Gymnasium says: {problem}"
        ) from problem
    except Exception as problem:
        # Environments are other people's code, and may refuse their options in any way they like.
        raise ConfigError(f"environment.options {config.options} do not fit {config.name}: {problem!r}") from problem
