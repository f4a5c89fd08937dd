"""Replay buffer that samples windows of consecutive steps, for recurrent policies and world models."""

from __future__ import annotations

from collections import deque

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferBytes, Demand
from rl4sys.buffers.ring import NONE, slots_for
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.spec import Array, Spec, State
from rl4sys.trajectory import Trajectory


class SequenceConfig(UniformConfig):
    """Options of the `sequence` buffer."""

    length: int = Field(default=64, gt=0, le=100_000)
    """Number of steps per window."""
    cross_episodes: bool = True
    """Let a window continue with the start of another episode; false keeps each window within one episode."""


class Sequence(Replay):
    """Replay buffer of windows of consecutive steps; columns have shape (batch_size, length, ...).

    The columns are obs.*, action, reward, next_obs.* and terminated of single steps; ``ended``, true at the end of an
    episode; ``first``, true at the first step of an episode or after a gap; and ``valid``, false for padding. Padding
    repeats the last step of a window with too few steps. The start of a window is drawn uniformly, then moved back
    until the window is full. After the end of an episode, a window continues with a later episode; no two episodes
    continue with the same one.
    """

    Config = SequenceConfig

    def __init__(self, config: SequenceConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._length, self._cross = config.length, config.cross_episodes
        self._next_episode, self._last_episode = (np.full(slots_for(config.size), NONE, np.int64) for _ in range(2))
        self._unfollowed: deque[int] = deque()

    @staticmethod
    def required_bytes(config: UniformConfig, spec: Spec) -> BufferBytes:
        replay = Replay.required_bytes(config, spec)
        return BufferBytes(replay.ram + 2 * 8 * slots_for(config.size), replay.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        numbers = self._ring.add(trajectory)
        slots = self._ring.slots(numbers)
        self._next_episode[slots] = self._last_episode[slots] = NONE
        if self._cross:
            self._link_episodes(trajectory, numbers)
        return len(trajectory)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        windows, valid = self._windows(self._draw(rng, rows))
        batch = {**self._steps(windows.ravel()), "valid": valid.ravel()}
        return {name: column.reshape(*windows.shape, *column.shape[1:]) for name, column in batch.items()}

    def state(self) -> State:
        numbers = np.arange(self._ring.oldest, self._ring.seen)
        following = self._next_episode[self._ring.slots(numbers)]
        followed = following != NONE
        return {
            **super().state(),
            "episodes": np.stack([numbers[followed], following[followed]], axis=1),
            "unfollowed": np.array(self._unfollowed, np.int64),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._unfollowed = deque(state["unfollowed"].tolist())
        for ended, start in state["episodes"]:
            self._link(ended, start)

    def _link_episodes(self, trajectory: Trajectory, numbers: Array) -> None:
        """Link a new episode to the earliest ended episode that no other episode follows."""
        start = numbers[0]
        if self._ring.chain(numbers[:1])[0] == start >= self._ring.oldest:
            while self._unfollowed and self._unfollowed[0] < self._ring.oldest:
                self._unfollowed.popleft()
            if self._unfollowed:
                self._link(self._unfollowed.popleft(), start)
        if trajectory.ended:
            self._unfollowed.append(int(numbers[-1]))

    def _link(self, ended: int, start: int) -> None:
        slots = self._ring.slots(np.array([ended, start]))
        self._next_episode[slots[0]], self._last_episode[slots[1]] = start, ended

    def _windows(self, starts: Array) -> tuple[Array, Array]:
        """Return the step numbers of each window, and a mask that is false for padding."""
        _, valid = self._forward(starts)
        missing = self._length - valid.sum(1)
        for moves in range(int(missing.max())):
            earlier = self._preceding(starts)
            starts = np.where((moves < missing) & (earlier != NONE), earlier, starts)
        return self._forward(starts)

    def _forward(self, starts: Array) -> tuple[Array, Array]:
        numbers = np.repeat(starts[:, None], self._length, axis=1)
        valid = np.ones(numbers.shape, bool)
        for step in range(1, self._length):
            following = self._following(numbers[:, step - 1])
            valid[:, step] = valid[:, step - 1] & (following != NONE)
            numbers[:, step] = np.where(valid[:, step], following, numbers[:, step - 1])
        return numbers, valid

    def _following(self, numbers: Array) -> Array:
        within = self._ring.successor(numbers)
        return np.where(within != NONE, within, self._next_episode[self._ring.slots(numbers)])

    def _preceding(self, numbers: Array) -> Array:
        within, other = self._ring.before(numbers), self._last_episode[self._ring.slots(numbers)]
        return np.where(within != NONE, within, np.where(other >= self._ring.oldest, other, NONE))

    def _steps(self, numbers: Array) -> dict[str, Array]:
        batch = self._ring.observations(numbers) | {
            f"next_{n}": c for n, c in self._ring.next_observations(numbers).items()
        }
        batch |= {name: self._ring.column(name, numbers) for name in self._ring.names()}
        return batch | {"first": self._ring.chain(numbers) == numbers}
