"""What every environment is here: a Gymnasium environment, and where its episodes end by themselves."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

Environment: TypeAlias = gymnasium.Env[Any, Any]


def step_limit(environment: Environment) -> int | None:
    """Steps after which the environment cuts its episodes; None for never."""
    return environment.spec.max_episode_steps if environment.spec else None


def limit_spec(name: str, steps: int) -> EnvSpec:
    """Says of an environment that Gymnasium does not know where it cuts its episodes."""
    return EnvSpec(f"rl4sys/{name}-v0", max_episode_steps=steps)


def limited(environment: Environment, name: str, steps: int) -> Environment:
    """The environment with a limit of its own."""
    environment.spec = limit_spec(name, steps)
    return TimeLimit(environment, steps)
