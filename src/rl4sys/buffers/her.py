"""Hindsight experience replay (Andrychowicz et al. 2017): what was reached is replayed as what had been wanted."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Literal

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, Demand, GoalReward, Room
from rl4sys.buffers.goals import apart
from rl4sys.buffers.replay import Replay, ReplayConfig
from rl4sys.errors import ConfigError, SpecError
from rl4sys.registry import GOAL_REWARDS
from rl4sys.spec import Array, Spec, State
from rl4sys.trajectory import OBSERVATION, Trajectory

DESIRED_GOAL = "desired_goal"
"""The observation that says what is wanted, as Gymnasium's environments with goals name it."""

ACHIEVED, DESIRED = f"{OBSERVATION}achieved_goal", OBSERVATION + DESIRED_GOAL
"""The columns of goals."""

_ENVIRONMENT = "environment"


class HerConfig(ReplayConfig):
    """Options of the `her` buffer."""

    strategy: Literal["future", "final", "episode", "random"] = "future"
    """Which goal achieved becomes the one desired: of a later step of the episode, of its last, of any of its steps, or
    of any step at all."""
    ratio: float = Field(default=0.8, ge=0, le=1)
    """The part of a batch that gets another goal; 0.8 is four for each as it was."""
    reward: str = _ENVIRONMENT
    """How goals are rewarded: environment (as it says itself), distance (0 within `threshold`, else -1), or the name a
    plugin registered."""
    threshold: float = Field(default=0.05, ge=0)
    """The distance at which a goal counts as reached."""
    terminated: Literal["recorded", "reached", "never"] = "recorded"
    """When a step with another goal terminates its episode: as it did, where it reaches that goal, or never."""


class Her(Replay):
    """Batches as those of `Replay`, in which a part of the rows has another goal, and the rewards it would have had.

    The goal is drawn anew each time. Of an episode that goes on, or is partly overwritten, what is held counts.
    """

    Config = HerConfig

    def __init__(self, config: HerConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._options, self._reward = config, _goal_reward(config, demand)
        self._episodes = _Episodes()

    @staticmethod
    def room(config: ReplayConfig, spec: Spec) -> Room:
        rows = Replay.room(config, spec)
        return Room(rows.memory + 8 * config.size, rows.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        if not {ACHIEVED, DESIRED} <= trajectory.columns.keys():
            seen = ", ".join(n.removeprefix(OBSERVATION) for n in trajectory.columns if n.startswith(OBSERVATION))
            raise ConfigError(
                f"buffer.type is her, which needs observations named achieved_goal and desired_goal; there are: "
                f"{seen}. Use uniform, or an environment with goals"
            )
        numbers = self._ring.add(trajectory)
        self._episodes.add(int(self._ring.chain(numbers[-1:])[0]), numbers, self._ring.oldest)
        return len(trajectory)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        numbers = self._draw(rng, rows)
        changed = rng.random(rows) < self._options.ratio
        goals = self._ring.observations(numbers)[DESIRED]
        donors = self._donors(rng, numbers[changed])
        goals[changed] = self._ring.led_to(donors)[ACHIEVED]
        batch = self._transitions(numbers, lambda steps, places: self._outcome(steps, goals[places], changed[places]))
        return batch | {
            DESIRED: goals,
            f"next_{DESIRED}": np.where(_like(changed, goals), goals, batch[f"next_{DESIRED}"]),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        numbers = np.arange(self._ring.oldest, self._ring.seen)
        chains = self._ring.chain(numbers)
        order = np.argsort(chains, kind="stable")
        parts = np.split(numbers[order], np.flatnonzero(np.diff(chains[order])) + 1)
        for part in sorted((part for part in parts if len(part)), key=lambda part: int(part[-1])):
            self._episodes.add(int(self._ring.chain(part[:1])[0]), part, self._ring.oldest)

    def _donors(self, rng: np.random.Generator, numbers: Array) -> Array:
        """The steps whose outcomes become the goals."""
        chance = rng.random(len(numbers))
        if self._options.strategy == "random":
            return self._ring.oldest + (chance * self._ring.held).astype(np.int64)
        strategy, oldest = self._options.strategy, self._ring.oldest
        steps = zip(self._ring.chain(numbers).tolist(), numbers.tolist(), chance.tolist(), strict=True)
        return np.array([self._episodes.choose(*step, strategy, oldest) for step in steps], np.int64)

    def _outcome(self, numbers: Array, goals: Array, changed: Array) -> tuple[Array, Array]:
        reward, terminated = self._recorded(numbers, numbers)
        if not changed.any():
            return reward, terminated
        achieved = self._ring.led_to(numbers[changed])[ACHIEVED]
        reward[changed] = self._rewards(achieved, goals[changed])
        if self._options.terminated == "reached":
            terminated[changed] = apart(achieved, goals[changed]) <= self._options.threshold
        elif self._options.terminated == "never":
            terminated[changed] = False
        return reward, terminated

    def _rewards(self, achieved: Array, goals: Array) -> Array:
        rewards = np.asarray(self._reward(achieved, goals))
        if rewards.shape != (len(goals),):
            raise SpecError(
                f"the reward of {len(goals)} goals has the shape {rewards.shape}; it should take many goals at once "
                f"and give one number each, ({len(goals)},)"
            )
        return rewards


class _Episodes:
    """The numbers of each chain's steps, the chain that was silent longest first."""

    def __init__(self) -> None:
        self._numbers: dict[int, array[int]] = {}

    def add(self, chain: int, numbers: Array, oldest: int) -> None:
        held = self._numbers.pop(chain, array("q"))
        if held and held[len(held) // 2] < oldest:
            held = held[bisect_left(held, oldest) :]
        held.extend(numbers[numbers >= oldest].tolist())
        self._numbers[chain] = held
        silent = next(iter(self._numbers))
        while self._numbers[silent][-1] < oldest:
            del self._numbers[silent]
            silent = next(iter(self._numbers))

    def choose(self, chain: int, number: int, chance: float, strategy: str, oldest: int) -> int:
        """A step of the chain, ``chance`` from 0 to 1 of the way through those that the strategy allows."""
        numbers = self._numbers[chain]
        if strategy == "final":
            return numbers[-1]
        first = bisect_left(numbers, number if strategy == "future" else oldest)
        return numbers[first + int(chance * (len(numbers) - first))]


def _goal_reward(config: HerConfig, demand: Demand) -> GoalReward:
    if config.reward != _ENVIRONMENT:
        reward: GoalReward = GOAL_REWARDS.get(config.reward)(config.threshold)
        return reward
    if demand.provided.goal_reward is None:
        raise ConfigError(
            "buffer.reward is environment, and there is none that says how goals are rewarded; set it to distance "
            f"with a threshold, or to one of: {', '.join(GOAL_REWARDS.names())}"
        )
    return demand.provided.goal_reward


def _like(flags: Array, rows: Array) -> Array:
    """Flags that broadcast over the rows."""
    return flags.reshape(len(flags), *[1] * (rows.ndim - 1))
