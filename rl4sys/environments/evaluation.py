"""Evaluation of a policy on whole episodes with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl4sys.environments.actor import Episode
from rl4sys.environments.actor_factory import make_evaluation_actor
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.policy.base import Policy

_STEPS_PER_ROUND = 128


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation: returns and lengths of its episodes."""

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

    def __repr__(self) -> str:
        mean, std, length = self.mean_return, self.std_return, float(np.mean(self.lengths))
        return f"Evaluation({len(self.episodes)} episodes, return {mean:.1f} ± {std:.1f}, length {length:.1f})"


class EvaluationStopped(Exception):
    """Raised if a stop is requested before the last episode has ended."""


def evaluate(
    config: EnvironmentConfig,
    policy: Policy,
    episodes: int,
    seed: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Evaluate the policy on ``episodes`` consecutive episodes in a new environment.

    Raises EvaluationStopped as soon as ``stopping()`` returns True.
    """
    seeds = np.random.SeedSequence([seed, 1])
    actor = make_evaluation_actor(config, seeds)
    finished: list[Episode] = []
    try:
        while len(finished) < episodes:
            if stopping():
                raise EvaluationStopped
            actor.collect(policy, version=0, steps=_STEPS_PER_ROUND)
            finished += actor.take_finished()
    finally:
        actor.close()
    return Evaluation(tuple(finished[:episodes]))
