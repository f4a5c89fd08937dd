"""Creation of environments by name: registered components, Gymnasium ids and other environment families."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gymnasium

from rl4sys.config import did_you_mean
from rl4sys.environments.base import Environment, limited, step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.mujoco import log_mujoco_warnings_once
from rl4sys.environments.old_style import adapt_old_style, has_old_reset
from rl4sys.environments.wrappers import apply_wrappers
from rl4sys.errors import ConfigError, MissingExtraError, RL4SysError
from rl4sys.extras import extra_of, missing_package
from rl4sys.registry import ENVIRONMENTS

_VERSIONED = re.compile(r"(?P<base>.+)-v(?P<number>\d+)")
_UNLIMITED = -1
"""Gymnasium's value for no step limit."""


def make_environment(config: EnvironmentConfig) -> Environment:
    """Make an environment: the registered component ``name`` if there is one, else one of the family ``wrapper``.

    A component is a class, called with the config if its constructor has a parameter ``config`` and with ``options``
    otherwise, or a function of the whole config. Environments of the old style are adapted.
    """
    component = config.name if config.name in ENVIRONMENTS else config.wrapper
    maker: Callable[..., Environment] = ENVIRONMENTS.get(component)
    with config_errors(config):
        environment = maker(**config.options) if _takes_options(maker, config) else maker(config)
        if not ENVIRONMENTS.is_shipped(component):
            environment = adapt_old_style(environment, config.name)
    return apply_wrappers(environment, config)


def _takes_options(maker: Callable[..., Environment], config: EnvironmentConfig) -> bool:
    if not isinstance(maker, type):
        return False
    return "config" in config.options or "config" not in inspect.signature(maker).parameters


def make_gym(config: EnvironmentConfig) -> Environment:
    """Make a Gymnasium environment. No render mode is set by default: it halves the speed of some environments."""
    limit = None if config.max_episode_steps is None else _UNLIMITED
    if config.name in gymnasium.registry and "mujoco" in str(gymnasium.registry[config.name].entry_point):
        log_mujoco_warnings_once()
    made: Environment = gymnasium.make(config.name, max_episode_steps=limit, disable_env_checker=True, **config.options)
    if not has_old_reset(made.unwrapped):
        return made
    steps, adapted = step_limit(made), adapt_old_style(made.unwrapped, config.name)
    return limited(adapted, config.name, steps) if steps and limit is None else adapted


@contextmanager
def config_errors(config: EnvironmentConfig) -> Iterator[None]:
    """Convert exceptions during environment creation to ConfigError or MissingExtraError that name the settings."""
    try:
        yield
    except RL4SysError:
        raise
    except gymnasium.error.DependencyNotInstalled as problem:
        raise _explain_missing(config, problem) from problem
    except ModuleNotFoundError as problem:
        if extra_of(problem.name) is None:
            raise _explain_unknown(config, problem) from problem
        raise missing_package(f"environment {config.name!r}", str(problem.name)) from problem
    except gymnasium.error.Error as problem:
        raise _explain_unknown(config, problem) from problem
    except Exception as problem:
        # Third-party environments may raise any exception for wrong options.
        raise ConfigError(f"environment.options {config.options} do not fit {config.name}: {problem!r}") from problem


def _explain_unknown(config: EnvironmentConfig, problem: Exception) -> ConfigError:
    if config.name.startswith("ALE/"):
        hint = "; for Atari games set environment.wrapper=atari."
    else:
        hint = did_you_mean(config.name, list(gymnasium.registry))
    return ConfigError(
        f"environment.name is {config.name!r}, which Gymnasium cannot make{hint} Gymnasium reported: {problem}"
    )


def _explain_missing(config: EnvironmentConfig, problem: Exception) -> MissingExtraError:
    """Name the package behind an error of Gymnasium; without one, repeat the error, which also names a package."""
    module = str(getattr(problem.__cause__ or problem.__context__, "name", ""))
    if extra_of(module) is None:
        return MissingExtraError(f"environment {config.name!r} needs a missing package: {problem}")
    return missing_package(f"environment {config.name!r}", module)


def available_version(name: str) -> str:
    """Return ``name`` if Gymnasium provides this version of the environment, else the name with the newest version.

    A name unknown to Gymnasium is returned unchanged.
    """
    matched = _VERSIONED.fullmatch(name)
    base = matched["base"] if matched else name
    numbers = [int(m["number"]) for m in map(_VERSIONED.fullmatch, gymnasium.registry) if m and m["base"] == base]
    if not numbers or (matched and int(matched["number"]) in numbers and not _is_removed(name)):
        return name
    return f"{base}-v{max(numbers)}"


def registered_limit(name: str) -> int | None:
    """Return the step limit of a Gymnasium id; None if it has no limit or is not registered."""
    return gymnasium.registry[name].max_episode_steps if name in gymnasium.registry else None


def _is_removed(name: str) -> bool:
    """Return True if the version was removed from Gymnasium, where it stays registered with a function that raises."""
    return getattr(gymnasium.spec(name).entry_point, "__module__", None) == gymnasium.envs.__name__
