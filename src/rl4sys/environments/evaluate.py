"""How well a policy does: whole episodes, started from seeds that are the same every time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rl4sys.environments.actor import Actor, Episode
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.gym import make_environment
from rl4sys.policy.base import Policy

_ROUND = 128


@dataclass(frozen=True)
class Evaluation:
    """The episodes a policy was judged by."""

    episodes: tuple[Episode, ...]

    @property
    def returns(self) -> list[float]:
        return [episode.total_reward for episode in self.episodes]

    @property
    def lengths(self) -> list[int]:
        return [episode.length for episode in self.episodes]

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))


def evaluate(config: EnvironmentConfig, policy: Policy, episodes: int, seed: int) -> Evaluation:
    """Run ``episodes`` episodes, one after the other, in an environment made for the purpose."""
    actor = Actor(lambda: make_environment(config), num_envs=1, seed=np.random.SeedSequence([seed, 1]))
    finished: list[Episode] = []
    while len(finished) < episodes:
        actor.collect(policy, version=0, steps=_ROUND)
        finished += actor.take_finished()
    actor.close()
    return Evaluation(tuple(finished[:episodes]))
