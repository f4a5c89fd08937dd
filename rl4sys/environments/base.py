"""Environment type (an alias of Gymnasium's `Env`) and step limits."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

Environment: TypeAlias = gymnasium.Env[Any, Any]


def step_limit(environment: Environment) -> int | None:
    """Return the maximum episode length that the environment declares, or None."""
    return environment.spec.max_episode_steps if environment.spec else None


def limit_spec(name: str, steps: int) -> EnvSpec:
    """Return a Gymnasium `EnvSpec` with a step limit, for an environment outside Gymnasium's registry."""
    return EnvSpec(f"rl4sys/{name}-v0", max_episode_steps=steps)


def limited(environment: Environment, name: str, steps: int) -> Environment:
    """Wrap the environment with a step limit, and store the limit in the spec of the environment."""
    environment.spec = limit_spec(name, steps)
    return TimeLimit(environment, steps)
