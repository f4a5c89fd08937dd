"""Creation of environments from the ``environment`` block of a config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium

from rl4sys.config import did_you_mean
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.old_style import adapt_old_style
from rl4sys.environments.provided import find_maker, make_with_config
from rl4sys.environments.wrappers import apply_own_wrappers, apply_wrappers
from rl4sys.errors import ConfigError, MissingExtraError, RL4SysError
from rl4sys.extras import extra_of, missing_package
from rl4sys.registry import ENVIRONMENTS


def make_environment(config: EnvironmentConfig) -> Environment:
    """Create an environment from the class or function that ``name`` refers to, or else from the family ``family``.

    A class or function is called with ``options``, or with the whole config if it has a parameter ``config``.
    Old-style environments are adapted to the interface of Gymnasium.
    """
    maker = None if config.name in ENVIRONMENTS else find_maker(config)
    component = config.name if config.name in ENVIRONMENTS else config.family
    is_own = maker is not None or not ENVIRONMENTS.is_shipped(component)
    with config_errors(config):
        environment = make_with_config(ENVIRONMENTS.get(component) if maker is None else maker, config)
        if is_own:
            environment = adapt_old_style(environment, config.name)
        environment = apply_own_wrappers(environment, config)
    return apply_wrappers(environment, config)


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
        raise ConfigError(
            f"environment.options is {config.options}, but {config.name!r} cannot be created with these options: "
            f"{problem!r}"
        ) from problem


def _explain_unknown(config: EnvironmentConfig, problem: Exception) -> ConfigError:
    if config.name.startswith("ALE/"):
        hint = "; for Atari games set environment.family=atari."
    else:
        hint = did_you_mean(config.name, list(gymnasium.registry))
    return ConfigError(
        f"environment.name is {config.name!r}, which Gymnasium cannot create{hint} Gymnasium reported: {problem}"
    )


def _explain_missing(config: EnvironmentConfig, problem: Exception) -> MissingExtraError:
    """Convert an error of Gymnasium about a missing package to an error with the install command, if it is known."""
    module = str(getattr(problem.__cause__ or problem.__context__, "name", ""))
    if extra_of(module) is None:
        return MissingExtraError(f"environment {config.name!r} needs a missing package: {problem}")
    return missing_package(f"environment {config.name!r}", module)
