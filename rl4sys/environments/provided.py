"""Environments given as Python objects, and their names in configs.

The name of a class or function that can be imported is ``module:name``; any process can create its environment.
A lambda or a class in a notebook also gets a name, but only the process that defines it can create the environment.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rl4sys.config import Settings
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError

Maker = Callable[..., Any]
"""Class or function that creates an environment; called with the ``options`` of the config."""

_IMPORTED = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<path>[A-Za-z_][\w.]*)")
_SETTING = "environment.name"
_LOCAL_MODULES = ("__main__", "__mp_main__")
_LOCAL = re.compile(r"<|#")
"""Pattern in names that cannot be imported: ``<lambda>``, ``<locals>``, or the ``#2`` of a second object."""
_provided: dict[str, Maker] = {}
_warned: set[Maker] = set()
_log = logging.getLogger("rl4sys.environments")


def environment_settings(environment: Any) -> Settings:
    """Return the ``environment`` block for an environment that is given as a name, a block or a Python object.

    A Python object is a class, a function that creates an environment, or an environment that can be created again.
    """
    if isinstance(environment, str):
        return {"name": environment}
    if isinstance(environment, Mapping):
        name = environment.get("name")
        own = environment_settings(name) if name is not None else {}
        return {**own, **{key: value for key, value in environment.items() if key != "name"}}
    if isinstance(environment, EnvironmentConfig):
        return environment.model_dump(mode="json")
    if isinstance(environment, EnvSpec):
        return _settings_of_spec(environment, f"{environment.id} with the wrappers of its spec")
    if isinstance(environment, type) or inspect.isroutine(environment) or _is_plain_callable(environment):
        return {"name": _name_of(environment)}
    return _settings_of_object(environment)


def is_recorded(config: EnvironmentConfig) -> bool:
    """Return True if other processes can create the environment from its config."""
    module, _, path = config.name.rpartition(":")
    return not (module in _LOCAL_MODULES or _LOCAL.search(path))


def provide_environment(name: str, environment: Any) -> None:
    """Make ``environment`` available in this process under ``name``, a name that cannot be imported."""
    maker = environment
    if isinstance(environment, gymnasium.Env):
        settings = _settings_of_object(environment)
        maker = _provided.get(settings["name"])
        if maker is None:
            raise ConfigError(
                f"environment is {environment!r:.80}; expected {name!r}, the class or function that the run started "
                "with"
            )
    if not callable(maker):
        raise ConfigError(
            f"environment is {environment!r:.80}; expected {name!r}, the class or function that the run started with"
        )
    _provided[name] = maker


def find_maker(config: EnvironmentConfig) -> Maker | None:
    """Return the class or function that ``config.name`` refers to; None for other names, such as Gymnasium ids."""
    if config.name in _provided:
        return _provided[config.name]
    if not is_recorded(config):
        raise ConfigError(
            f"the environment {config.name!r} is a Python object that cannot be imported. Pass the object again, such "
            "as rl4sys.load_run(RUN).evaluate(environment=MyEnv), or move its class into a module and train again"
        )
    matched = _IMPORTED.fullmatch(config.name)
    return import_object(matched["module"], matched["path"], _SETTING) if matched else None


def make_with_config(maker: Maker, config: EnvironmentConfig) -> Any:
    """Create an environment: pass the options of the config, or the config if there is a parameter ``config``.

    The render mode is passed only if ``maker`` has a parameter for it.
    """
    options, parameters = dict(config.options), inspect.signature(maker).parameters
    if "config" in parameters and "config" not in options:
        return maker(config)
    if not isinstance(maker, type) and _takes_config_only(parameters, options):
        if maker not in _warned:
            _warned.add(maker)
            _log.warning(
                "the function of environment '%s' gets the whole config, because its only parameter, %s, is not in "
                "environment.options. This is deprecated: rename the parameter to config, or add it to the options",
                config.name,
                *parameters,
            )
        return maker(config)
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
    if not takes_any and "render_mode" not in parameters:
        options.pop("render_mode", None)
    return maker(**options)


def _takes_config_only(parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> bool:
    """Return True if the only parameter is positional, is required and is not among the options."""
    only = next(iter(parameters.values()), None)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        len(parameters) == 1
        and only is not None
        and only.kind in positional
        and only.default is only.empty
        and only.name not in options
    )


def _is_plain_callable(environment: Any) -> bool:
    """Return True for a callable object, such as `functools.partial`, that is not an environment."""
    return callable(environment) and not isinstance(environment, gymnasium.Env)


def _name_of(maker: Maker) -> str:
    """Return the name of a class or function; store it in this process under this name if it cannot be imported."""
    module = str(getattr(maker, "__module__", type(maker).__module__))
    path = str(getattr(maker, "__qualname__", type(maker).__qualname__))
    name = f"{module}:{path}"
    if module not in _LOCAL_MODULES and not _LOCAL.search(path) and import_object(module, path, _SETTING) is maker:
        return name
    return _provide_new(name if module in _LOCAL_MODULES or _LOCAL.search(path) else f"__main__:{path}", maker)


def _provide_new(name: str, maker: Maker) -> str:
    """Store ``maker`` under ``name``, with a number appended if the name is already used, and return the name."""
    number, free = 1, name
    while _provided.get(free, maker) is not maker:
        number += 1
        free = f"{name}#{number}"
    _provided[free] = maker
    return free


def import_object(module: str, path: str, setting: str) -> Maker | None:
    """Return the class or function ``path`` of a module; None if the module does not define it.

    Raises `ConfigError` if the module does not exist; ``setting`` is the setting that the message mentions.
    """
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        # Installed commands do not search the current directory, which may contain modules of the user.
        sys.path.append(str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise
        raise ConfigError(
            f"{setting} is '{module}:{path}', but the module {problem.name!r} cannot be found; run the command "
            "in the folder that contains it, or install it"
        ) from problem
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None


def _settings_of_object(environment: Any) -> Settings:
    """Return the block of an environment object. Raises `ConfigError` if the environment cannot be created again."""
    if not isinstance(environment, gymnasium.Env):
        hint = "; set num_envs for several copies" if hasattr(environment, "num_envs") else ""
        raise ConfigError(
            f"environment is {environment!r:.80}; expected a name such as 'CartPole-v1', an environment, its class, or "
            f"a function that creates it{hint}"
        )
    if environment.spec is not None:
        return _settings_of_spec(environment.spec, str(environment))
    kind = type(environment)
    if isinstance(environment, gymnasium.Wrapper):
        raise _needs_factory(str(environment), f"{kind.__name__}(MyEnv())")
    if _has_no_parameters(kind):
        return {"name": _name_of(kind)}
    saved = getattr(environment, "_ezpickle_kwargs", None)
    if isinstance(saved, Mapping) and not getattr(environment, "_ezpickle_args", ()) and _is_plain(saved):
        return {"name": _name_of(kind), "options": dict(saved)}
    raise _needs_factory(str(environment), f"{kind.__name__}(...)")


def _needs_factory(title: str, example: str) -> ConfigError:
    return ConfigError(
        f"the environment {title} cannot be created again, because its constructor arguments are unknown; give a "
        f"function that creates it: environment=lambda: {example}"
    )


def _settings_of_spec(spec: EnvSpec, title: str) -> Settings:
    """Return the block of an environment that Gymnasium created, with its options, step limit and wrappers."""
    options = {key: value for key, value in spec.kwargs.items() if key not in ("render_mode", "max_episode_steps")}
    wrappers = [{"name": wrapper.entry_point, "options": wrapper.kwargs} for wrapper in spec.additional_wrappers]
    if spec.id not in gymnasium.registry or any(wrapper["options"] is None for wrapper in wrappers):
        raise _needs_factory(title, "MyWrapper(gymnasium.make(...))")
    if not _is_plain(options) or not _is_plain(wrappers):
        # A config cannot contain arguments such as functions.
        return {"name": _provide_new(f"__main__:{spec.id}", lambda: gymnasium.make(spec, disable_env_checker=True))}
    settings: Settings = {"name": spec.id, "options": options, "wrappers": wrappers}
    if spec.max_episode_steps != gymnasium.registry[spec.id].max_episode_steps:
        settings["max_episode_steps"] = spec.max_episode_steps
    return {key: value for key, value in settings.items() if value not in ({}, [], None)}


def _has_no_parameters(kind: type) -> bool:
    return not inspect.signature(kind).parameters


def _is_plain(value: Any) -> bool:
    """Return True if a value can be stored in a config file and read back unchanged."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
