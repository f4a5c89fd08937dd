"""Prioritized experience replay (Schaul et al. 2016): steps that surprised are replayed more often."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, Demand, Room
from rl4sys.buffers.replay import Replay, ReplayConfig
from rl4sys.buffers.ring import slots_for
from rl4sys.buffers.sum_tree import SumTree, tree_bytes
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

PRIORITY = "priority"
"""The feedback that says how much each row surprised, such as its absolute temporal difference."""


class PrioritizedConfig(ReplayConfig):
    """Options of the `prioritized` buffer."""

    alpha: float = Field(default=0.6, ge=0, le=1)
    """How much priorities count: 0 draws all steps alike, 1 in proportion to their priorities."""
    beta_start: float = Field(default=0.4, ge=0, le=1)
    """How much of the bias is corrected by weights at first; 1 is all of it."""
    beta_steps: int = Field(default=100_000, gt=0)
    """Steps over which the correction grows from beta_start to 1."""
    epsilon: float = Field(default=1e-6, gt=0)
    """Added to every priority, so that no step is forgotten for good."""


class Prioritized(Replay):
    """Draws steps by the priorities that `feedback` gives; new ones have the largest so far.

    Beside what `Replay` gives, a batch holds weight (the importance of each row, at most 1) and index (the numbers of
    its steps). The algorithm multiplies each row's loss by its weight and returns ``priority``.
    """

    Config = PrioritizedConfig

    def __init__(self, config: PrioritizedConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._options = config
        self._tree = SumTree(slots_for(config.size))
        self._largest = 1.0
        self._awaited = False

    @staticmethod
    def room(config: ReplayConfig, spec: Spec) -> Room:
        rows = Replay.room(config, spec)
        return Room(rows.memory + tree_bytes(slots_for(config.size)), rows.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        held = self._ring.oldest
        numbers = self._ring.add(trajectory)
        gone = np.arange(held, min(self._ring.oldest, int(numbers[0])))
        self._prioritize(gone, np.zeros(len(gone)))
        stays = numbers[numbers >= self._ring.oldest]
        self._prioritize(stays, np.full(len(stays), self._largest))
        return len(trajectory)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        if self._awaited:
            raise _no_priorities()
        self._awaited = True
        # One draw in each of as many equal stretches: rows of a batch differ more than they would by chance.
        values = (np.arange(rows) + rng.random(rows)) / rows * self._tree.total
        numbers = self._numbers(self._tree.find(values))
        return self._transitions(numbers, self._recorded) | {"weight": self._weights(numbers), "index": numbers}

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        if PRIORITY not in feedback:
            raise _no_priorities()
        self._awaited = False
        surprise = np.abs(np.asarray(feedback[PRIORITY], np.float64))
        # Single precision, as they are saved.
        priorities = ((surprise + self._options.epsilon) ** self._options.alpha).astype(np.float32).astype(np.float64)
        there = batch["index"] >= self._ring.oldest
        self._prioritize(batch["index"][there], priorities[there])
        self._largest = max(self._largest, float(priorities.max(initial=0.0)))

    def state(self) -> State:
        priorities = self._tree.get(self._ring.slots(self._held_numbers()))
        return {**super().state(), "priorities": priorities.astype(np.float32), "largest": self._largest}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._prioritize(self._held_numbers(), state["priorities"].astype(np.float64))
        self._largest = float(state["largest"])

    def _held_numbers(self) -> Array:
        return np.arange(self._ring.oldest, self._ring.seen)

    def _prioritize(self, numbers: Array, priorities: Array) -> None:
        self._tree.set(self._ring.slots(numbers), priorities)

    def _numbers(self, slots: Array) -> Array:
        """The numbers of held steps by their slots."""
        oldest = self._ring.oldest
        return oldest + self._ring.slots(slots - oldest)

    def _weights(self, numbers: Array) -> Array:
        """(1 / (N P(i))) ** beta, over the largest in the batch."""
        progress = min(1.0, self._ring.seen / self._options.beta_steps)
        beta = self._options.beta_start + progress * (1.0 - self._options.beta_start)
        priorities = self._tree.get(self._ring.slots(numbers))
        return np.asarray((priorities / priorities.min()) ** -beta, np.float32)


def _no_priorities() -> ConfigError:
    return ConfigError(
        "buffer.type is prioritized, and the algorithm gave no priorities for its last batch; use uniform, or have the "
        'algorithm return Update(metrics, {"priority": the absolute temporal difference of each row})'
    )
