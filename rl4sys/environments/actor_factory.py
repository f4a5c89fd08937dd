"""Actors for training and for evaluation, built from an environment config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from rl4sys.environments.actor import Actor
from rl4sys.environments.base import Environment, step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.envpool import EnvPoolActor
from rl4sys.environments.factory import make_environment
from rl4sys.environments.families.atari import for_evaluation
from rl4sys.environments.families.pettingzoo import MultiAgentActor

AnyActor: TypeAlias = Actor | EnvPoolActor | MultiAgentActor

MAX_EVALUATION_STEPS = 10_000
"""Step limit of evaluation episodes without a configured limit, because a greedy policy may never end an episode."""


def make_actor(config: EnvironmentConfig, seed: np.random.SeedSequence) -> AnyActor:
    """Build the actor that collects training experience."""
    if config.family == "pettingzoo":
        return MultiAgentActor(config, seed)
    if config.vectorized is not None:
        return EnvPoolActor(config, seed)
    return Actor(
        lambda: make_environment(config),
        config.num_envs,
        seed,
        remake=config.remake,
        clip_reward=config.clip_reward,
    )


def make_evaluation_actor(
    config: EnvironmentConfig,
    seed: np.random.SeedSequence,
    wrap: Callable[[Any], Any] = lambda environment: environment,
) -> Actor | MultiAgentActor:
    """Build the actor for evaluation: one environment, wrapped by ``wrap``, with unclipped rewards."""
    if config.family == "pettingzoo":
        return MultiAgentActor(config.model_copy(update={"num_envs": 1, "clip_reward": None}), seed, wrap)
    return Actor(lambda: wrap(_make_limited(config)), num_envs=1, seed=seed, remake=config.remake)


def _make_limited(config: EnvironmentConfig) -> Environment:
    config = for_evaluation(config) if config.family == "atari" else config
    environment = make_environment(config)
    if config.max_episode_steps or step_limit(environment):
        return environment
    environment.close()
    return make_environment(config.model_copy(update={"max_episode_steps": MAX_EVALUATION_STEPS}))
