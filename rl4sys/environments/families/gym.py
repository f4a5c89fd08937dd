"""Family ``gym``: environments of Gymnasium by id, and their versions and step limits."""

from __future__ import annotations

import re

import gymnasium

from rl4sys.environments.base import Environment, limited, step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.mujoco import log_mujoco_warnings_once
from rl4sys.environments.old_style import adapt_old_style, has_old_reset

_VERSIONED = re.compile(r"(?P<base>.+)-v(?P<number>\d+)")
_UNLIMITED = -1
"""Gymnasium's value for no step limit."""


def make_gym(config: EnvironmentConfig) -> Environment:
    """Create a Gymnasium environment, by default without render mode, which halves the speed of some environments."""
    limit = None if config.max_episode_steps is None else _UNLIMITED
    if config.name in gymnasium.registry and "mujoco" in str(gymnasium.registry[config.name].entry_point):
        log_mujoco_warnings_once()
    made: Environment = gymnasium.make(config.name, max_episode_steps=limit, disable_env_checker=True, **config.options)
    if not has_old_reset(made.unwrapped):
        return made
    steps, adapted = step_limit(made), adapt_old_style(made.unwrapped, config.name)
    return limited(adapted, config.name, steps) if steps and limit is None else adapted


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
    """Return True if Gymnasium has removed the version. Removed versions stay registered, but cannot be created."""
    return getattr(gymnasium.spec(name).entry_point, "__module__", None) == gymnasium.envs.__name__
