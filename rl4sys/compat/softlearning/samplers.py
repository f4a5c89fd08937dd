"""Factory of actors by the class name of the sampler in softlearning."""

from __future__ import annotations

import numpy as np
from gymnasium.wrappers import TimeLimit

from rl4sys.buffers.her import DESIRED_GOAL
from rl4sys.compat.softlearning.components import check_arguments, split
from rl4sys.config import Settings
from rl4sys.environments.actor import Actor
from rl4sys.environments.base import Environment
from rl4sys.errors import ConfigError

_SAMPLERS = ("SimpleSampler", "GoalSampler", "RemoteSampler")


def get(params: Settings, environment: Environment, seed: int = 0) -> Actor:
    """Return an actor: `collect(policy, version, steps)` returns trajectories, `take_finished()` the ended episodes.

    ``params`` is ``{"class_name": "SimpleSampler", "config": {"max_path_length": 1000}}``.
    """
    name, config = split(params, "sampler", _SAMPLERS)
    check_arguments(config, "sampler", ("max_path_length",))
    if name == "RemoteSampler":
        raise ConfigError("RemoteSampler needs Ray, which this release does not support; use SimpleSampler")
    length = config.get("max_path_length")
    limited = environment if length is None else TimeLimit(environment, length)
    actor = Actor(lambda: limited, 1, np.random.SeedSequence(seed))
    if name == "GoalSampler" and DESIRED_GOAL not in actor.spec.observation:
        raise ConfigError("GoalSampler needs an environment with goals: its observations must contain desired_goal")
    return actor
