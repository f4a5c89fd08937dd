"""The actor that fits an environment, whatever its family."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from rl4sys.environments.actor import Actor
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.gym import make_environment
from rl4sys.environments.pool import PoolActor
from rl4sys.environments.team import TeamActor

AnyActor: TypeAlias = Actor | PoolActor | TeamActor


def make_actor(config: EnvironmentConfig, seed: np.random.SeedSequence) -> AnyActor:
    if config.wrapper == "pettingzoo":
        return TeamActor(config, seed)
    if config.vectorized is not None:
        return PoolActor(config, seed)
    return Actor(
        lambda: make_environment(config),
        config.num_envs,
        seed,
        remake=config.remake,
        clip_reward=config.clip_reward,
    )
