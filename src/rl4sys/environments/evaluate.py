"""How well a policy does: whole episodes, started from seeds that are the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.environments.actor import Actor, Episode
from rl4sys.environments.atari import for_evaluation
from rl4sys.environments.base import Environment, step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.gym import make_environment
from rl4sys.environments.team import TeamActor
from rl4sys.policy.base import Policy

LONGEST_EPISODE = 10_000
"""Steps after which an evaluation episode is cut where neither the environment nor the config has a limit: a policy
without chance may go in a circle for ever."""
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


class EvaluationStopped(Exception):
    """The evaluation was asked to stop before its last episode ended."""


def evaluate(
    config: EnvironmentConfig,
    policy: Policy,
    episodes: int,
    seed: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Run ``episodes`` episodes, one after the other, in an environment made for the purpose."""
    seeds = np.random.SeedSequence([seed, 1])
    actor = make_judging_actor(config, seeds)
    finished: list[Episode] = []
    try:
        while len(finished) < episodes:
            if stopping():
                raise EvaluationStopped
            actor.collect(policy, version=0, steps=_ROUND)
            finished += actor.take_finished()
    finally:
        actor.close()
    return Evaluation(tuple(finished[:episodes]))


def make_judging_actor(
    config: EnvironmentConfig,
    seeds: np.random.SeedSequence,
    around: Callable[[Any], Any] = lambda environment: environment,
) -> Actor | TeamActor:
    """One plain environment, with rewards as they are, and ``around`` put around it."""
    if config.wrapper == "pettingzoo":
        return TeamActor(config.model_copy(update={"num_envs": 1, "clip_reward": None}), seeds, around)
    return Actor(lambda: around(_make_limited(config)), num_envs=1, seed=seeds, remake=config.remake)


def _make_limited(config: EnvironmentConfig) -> Environment:
    config = for_evaluation(config) if config.wrapper == "atari" else config
    environment = make_environment(config)
    if config.max_episode_steps or step_limit(environment):
        return environment
    environment.close()
    return make_environment(config.model_copy(update={"max_episode_steps": LONGEST_EPISODE}))
