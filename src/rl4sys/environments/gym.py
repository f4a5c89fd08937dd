"""Gymnasium environments by id, or registered ones by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import gymnasium
from gymnasium.wrappers import TimeLimit

from rl4sys.config import did_you_mean
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError, MissingExtraError, RL4SysError
from rl4sys.registry import ENVIRONMENTS

Environment: TypeAlias = gymnasium.Env[Any, Any]


def make_environment(config: EnvironmentConfig) -> Environment:
    """One environment: the registered component of that name, else one of the family ``wrapper``.

    A component is a class of Gymnasium environments, made with ``options``, or a function of the whole config.
    """
    maker: Callable[..., Environment] = ENVIRONMENTS.get(config.name if config.name in ENVIRONMENTS else config.wrapper)
    if maker is make_gym:
        return make_gym(config)
    is_class = isinstance(maker, type) and issubclass(maker, gymnasium.Env)
    with _explaining(config):
        environment = maker(**config.options) if is_class else maker(config)
    if config.max_episode_steps is not None:
        environment = TimeLimit(environment, config.max_episode_steps)
    return environment


def make_gym(config: EnvironmentConfig) -> Environment:
    """A Gymnasium environment; never with a render mode, which slows some to less than half."""
    with _explaining(config):
        return gymnasium.make(
            config.name, max_episode_steps=config.max_episode_steps, disable_env_checker=True, **config.options
        )


@contextmanager
def _explaining(config: EnvironmentConfig) -> Iterator[None]:
    """Whatever goes wrong while an environment is made, as a message about its settings."""
    try:
        yield
    except RL4SysError:
        raise
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
