"""The place of a live system among environments: it has a name and settings, but only its own clients can step it."""

from __future__ import annotations

from typing import NoReturn

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError


def make_live(config: EnvironmentConfig) -> NoReturn:
    raise ConfigError(
        f"{config.name!r} is a live system, which acts only through its clients; to judge its policy elsewhere name "
        "an environment with the same spaces: rl4sys evaluate RUN --environment LunarLander-v3"
    )
