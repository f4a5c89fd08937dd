"""Placeholder environment of a live system, which only its own clients can step."""

from __future__ import annotations

from typing import NoReturn

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError


def make_live(config: EnvironmentConfig) -> NoReturn:
    raise ConfigError(
        f"{config.name!r} is a live system, which acts only through its clients; to evaluate its policy, name an "
        "environment with the same spaces: rl4sys evaluate RUN --environment LunarLander-v3"
    )
