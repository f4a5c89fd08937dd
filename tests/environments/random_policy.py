"""Random policy, and helpers to compare the trajectories of two actors."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4sys.environments.actor import Actor
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Columns, Discrete, Space
from rl4sys.trajectory import Trajectory


class Random:
    """Policy that samples actions uniformly; continuous actions are between -1 and 1."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        rows = len(next(iter(observation.values())))
        if isinstance(self._space, Discrete):
            action = (draws.uniforms(rows) * self._space.choices).astype(np.int64)
        else:
            drawn = draws.uniforms(rows * self._space.size).reshape(rows, *self._space.shape)
            action = (2 * drawn - 1).astype(np.float32)
        return Decision(action, np.zeros(rows, np.float32), memory)

    def greedy(self) -> Random:
        return self

    def snapshot(self, version: int) -> Snapshot:
        raise NotImplementedError


def actor_in(config: EnvironmentConfig, num_envs: int = 2, seed: int = 1) -> Actor:
    return Actor(
        lambda: make_environment(config), num_envs, np.random.SeedSequence(seed), clip_reward=config.clip_reward
    )


def as_bytes(trajectories: list[Trajectory]) -> list[Any]:
    """Return the trajectories with columns as bytes, to compare them bit for bit."""
    return [
        (t.episode, t.offset, t.terminated, t.truncated, {n: c.tobytes() for n, c in t.columns.items()})
        for t in trajectories
    ]
