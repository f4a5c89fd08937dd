"""Environments by name: registered ones, Gymnasium's by id, and those of the other families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gymnasium

from rl4sys.config import did_you_mean
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.mujoco_log import tell_mujoco_warnings_once
from rl4sys.environments.prepare import prepare
from rl4sys.errors import ConfigError, MissingExtraError, RL4SysError
from rl4sys.registry import ENVIRONMENTS

_UNLIMITED = -1
"""What Gymnasium takes for no limit of its own."""

_EXTRAS = {
    "ale_py": "atari",
    "cv2": "atari",
    "mujoco": "mujoco",
    "dm_control": "dm_control",
    "Box2D": "all",
    "envpool": "envpool",
    "pettingzoo": "pettingzoo",
}
"""Which extra brings a package."""


def make_environment(config: EnvironmentConfig) -> Environment:
    """One environment: the registered component of that name, else one of the family ``wrapper``.

    A component is a class of Gymnasium environments, made with ``options``, or a function of the whole config.
    """
    maker: Callable[..., Environment] = ENVIRONMENTS.get(config.name if config.name in ENVIRONMENTS else config.wrapper)
    is_class = isinstance(maker, type) and issubclass(maker, gymnasium.Env)
    with explaining(config):
        environment = maker(**config.options) if is_class else maker(config)
    return prepare(environment, config)


def make_gym(config: EnvironmentConfig) -> Environment:
    """A Gymnasium environment; never with a render mode, which slows some to less than half."""
    limit = None if config.max_episode_steps is None else _UNLIMITED
    if config.name in gymnasium.registry and "mujoco" in str(gymnasium.registry[config.name].entry_point):
        tell_mujoco_warnings_once()
    return gymnasium.make(config.name, max_episode_steps=limit, disable_env_checker=True, **config.options)


@contextmanager
def explaining(config: EnvironmentConfig) -> Iterator[None]:
    """Whatever goes wrong while an environment is made, as a message about its settings."""
    try:
        yield
    except RL4SysError:
        raise
    except gymnasium.error.DependencyNotInstalled as problem:
        raise MissingExtraError(
            f"environment {config.name!r} needs a package that is missing: {problem}{_remedy(_cause(problem))}"
        ) from problem
    except ModuleNotFoundError as problem:
        module = _root(problem.name)
        if module not in _EXTRAS:
            raise _explain_unknown(config, problem) from problem
        raise MissingExtraError(
            f"environment {config.name!r} needs {module}, which is not installed{_remedy(module)}"
        ) from problem
    except gymnasium.error.Error as problem:
        raise _explain_unknown(config, problem) from problem
    except Exception as problem:
        # Environments are other people's code, and may refuse their options in any way they like.
        raise ConfigError(f"environment.options {config.options} do not fit {config.name}: {problem!r}") from problem


def _explain_unknown(config: EnvironmentConfig, problem: Exception) -> ConfigError:
    if config.name.startswith("ALE/"):
        meant = "; Atari games are made with environment.wrapper=atari."
    else:
        meant = did_you_mean(config.name, list(gymnasium.registry))
    return ConfigError(
        f"environment.name is {config.name!r}, which Gymnasium cannot make{meant} Gymnasium says: {problem}"
    )


def _remedy(module: str) -> str:
    extra = _EXTRAS.get(module)
    return f": pip install 'rl4sys[{extra}]'" if extra else ""


def _cause(problem: BaseException) -> str:
    """The package whose absence is behind an error, if it is told."""
    return _root(getattr(problem.__cause__ or problem.__context__, "name", None))


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]
