"""Environment family of live systems, which act through their clients and cannot be stepped locally."""

from __future__ import annotations

from typing import NoReturn

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError


def make_live(config: EnvironmentConfig) -> NoReturn:
    raise ConfigError(
        f"{config.name!r} is a live system, which only its clients can step; to evaluate its policy, give an "
        "environment with the same spaces: rl4sys evaluate RUN --environment LunarLander-v3"
    )
