"""Factory of environments by universe, domain and task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl4sys.config import parse
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.environments.families.gym import available_version


def get_environment_from_params(params: Mapping[str, Any]) -> Environment:
    """Create the environment of ``{"universe": "gym", "domain": "HalfCheetah", "task": "v3", "kwargs": {}}``.

    If Gymnasium no longer provides the version, the newest version is used.
    """
    settings = {"options" if name == "kwargs" else name: value for name, value in params.items()}
    config = parse(EnvironmentConfig, settings, "environment")
    if config.family == "gym":
        config = config.model_copy(update={"name": available_version(config.name)})
    return make_environment(config)
