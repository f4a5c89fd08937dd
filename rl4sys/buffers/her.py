"""Hindsight experience replay (Andrychowicz et al. 2017): relabels transitions with goals achieved later."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Literal

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferBytes, Demand, GoalReward
from rl4sys.buffers.goals import goal_distance
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.errors import ConfigError, SpecError
from rl4sys.registry import GOAL_REWARDS
from rl4sys.spec import Array, Spec, State
from rl4sys.trajectory import OBSERVATION, Trajectory

DESIRED_GOAL = "desired_goal"
"""Name of the desired goal among the observations, by Gymnasium convention."""

ACHIEVED, DESIRED = f"{OBSERVATION}achieved_goal", OBSERVATION + DESIRED_GOAL
"""Column names of achieved and desired goals."""

_ENVIRONMENT = "environment"


class HerConfig(UniformConfig):
    """Options of the `her` buffer."""

    strategy: Literal["future", "final", "episode", "random"] = "future"
    """Source of new goals: goals achieved in the same or a later step of the episode (future), in the last step of the
    episode (final), in any step of the episode (episode), or in any stored step (random)."""
    ratio: float = Field(default=0.8, ge=0, le=1)
    """Fraction of the rows of a batch that are relabeled; 0.8 gives four relabeled rows per original row."""
    reward: str = _ENVIRONMENT
    """Reward of relabeled steps: environment (compute_reward of the environment), distance (0 within `threshold` of the
    goal, else -1), or the name of a goal reward that a plugin registered."""
    threshold: float = Field(default=0.05, ge=0)
    """Maximum distance between achieved and desired goal at which the goal is reached."""
    terminated: Literal["recorded", "reached", "never"] = "recorded"
    """Termination flag of relabeled steps: the recorded flag (recorded), true if the new goal is reached (reached), or
    always false (never)."""


class Her(Replay):
    """Replay buffer that relabels a fraction of each batch with other goals and recomputes the rewards.

    New goals are drawn for every batch from the stored steps. Episodes may be unfinished or partly overwritten.
    """

    Config = HerConfig

    def __init__(self, config: HerConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._options, self._reward = config, _goal_reward(config, demand)
        self._episodes = _EpisodeIndex()

    @staticmethod
    def required_bytes(config: UniformConfig, spec: Spec) -> BufferBytes:
        replay = Replay.required_bytes(config, spec)
        return BufferBytes(replay.ram + 8 * config.size, replay.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        if not {ACHIEVED, DESIRED} <= trajectory.columns.keys():
            seen = ", ".join(n.removeprefix(OBSERVATION) for n in trajectory.columns if n.startswith(OBSERVATION))
            raise ConfigError(
                f"buffer.type is 'her', which needs the observations 'achieved_goal' and 'desired_goal'; found: "
                f"{seen}. Set buffer.type to 'uniform', or use a goal-conditioned environment"
            )
        numbers = self._ring.add(trajectory)
        self._episodes.add(int(self._ring.chain(numbers[-1:])[0]), numbers, self._ring.oldest)
        return len(trajectory)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        numbers = self._draw(rng, rows)
        relabeled = rng.random(rows) < self._options.ratio
        goals = self._ring.observations(numbers)[DESIRED]
        donors = self._donors(rng, numbers[relabeled])
        goals[relabeled] = self._ring.next_observations(donors)[ACHIEVED]
        batch = self._transitions(
            numbers, lambda steps, positions: self._outcome(steps, goals[positions], relabeled[positions])
        )
        return batch | {
            DESIRED: goals,
            f"next_{DESIRED}": np.where(_broadcastable(relabeled, goals), goals, batch[f"next_{DESIRED}"]),
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
        """Draw, for each given step, the step whose achieved goal becomes the new desired goal."""
        chance = rng.random(len(numbers))
        if self._options.strategy == "random":
            return self._ring.oldest + (chance * self._ring.num_stored).astype(np.int64)
        strategy, oldest = self._options.strategy, self._ring.oldest
        steps = zip(self._ring.chain(numbers).tolist(), numbers.tolist(), chance.tolist(), strict=True)
        return np.array([self._episodes.choose(*step, strategy, oldest) for step in steps], np.int64)

    def _outcome(self, numbers: Array, goals: Array, relabeled: Array) -> tuple[Array, Array]:
        reward, terminated = self._recorded(numbers, numbers)
        if not relabeled.any():
            return reward, terminated
        achieved = self._ring.next_observations(numbers[relabeled])[ACHIEVED]
        reward[relabeled] = self._rewards(achieved, goals[relabeled])
        if self._options.terminated == "reached":
            terminated[relabeled] = goal_distance(achieved, goals[relabeled]) <= self._options.threshold
        elif self._options.terminated == "never":
            terminated[relabeled] = False
        return reward, terminated

    def _rewards(self, achieved: Array, goals: Array) -> Array:
        rewards = np.asarray(self._reward(achieved, goals))
        if rewards.shape != (len(goals),):
            raise SpecError(
                f"the goal reward function returned shape {rewards.shape} for {len(goals)} goals; expected "
                f"({len(goals)},). The function must accept one goal per row and return one reward per row"
            )
        return rewards


class _EpisodeIndex:
    """Step numbers of each stored episode (chain of the ring); episodes are ordered by their newest step."""

    def __init__(self) -> None:
        self._numbers: dict[int, array[int]] = {}

    def add(self, chain: int, numbers: Array, oldest: int) -> None:
        stored = self._numbers.pop(chain, array("q"))
        if stored and stored[len(stored) // 2] < oldest:
            stored = stored[bisect_left(stored, oldest) :]
        stored.extend(numbers[numbers >= oldest].tolist())
        self._numbers[chain] = stored
        idle = next(iter(self._numbers))
        while self._numbers[idle][-1] < oldest:
            del self._numbers[idle]
            idle = next(iter(self._numbers))

    def choose(self, chain: int, number: int, chance: float, strategy: str, oldest: int) -> int:
        """Return the number of a step that ``strategy`` allows for a goal; ``chance`` in [0, 1) selects the step."""
        numbers = self._numbers[chain]
        if strategy == "final":
            return numbers[-1]
        first = bisect_left(numbers, number if strategy == "future" else oldest)
        return numbers[first + int(chance * (len(numbers) - first))]


def _goal_reward(config: HerConfig, demand: Demand) -> GoalReward:
    if config.reward != _ENVIRONMENT:
        reward: GoalReward = GOAL_REWARDS.get(config.reward)(config.threshold)
        return reward
    if demand.resources.goal_reward is None:
        raise ConfigError(
            "buffer.reward is 'environment', but the environment has no goal reward; set buffer.reward to one of: "
            f"{', '.join(GOAL_REWARDS.names())}"
        )
    return demand.resources.goal_reward


def _broadcastable(flags: Array, rows: Array) -> Array:
    """Reshape ``flags`` (one per row) so that they broadcast over the other axes of ``rows``."""
    return flags.reshape(len(flags), *[1] * (rows.ndim - 1))
