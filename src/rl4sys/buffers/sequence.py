"""Windows of consecutive steps, for recurrent policies and world models that learn from replay."""

from __future__ import annotations

from collections import deque

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, Demand, Room
from rl4sys.buffers.replay import Replay, ReplayConfig
from rl4sys.buffers.ring import NONE, slots_for
from rl4sys.spec import Array, Spec, State
from rl4sys.trajectory import Trajectory


class SequenceConfig(ReplayConfig):
    """Options of the `sequence` buffer."""

    length: int = Field(default=64, gt=0, le=100_000)
    """Steps of a window."""
    cross_episodes: bool = True
    """Let a window run over into another episode, where `first` marks its beginning; else it stays within one."""


class Sequence(Replay):
    """Batches of windows: every column is (batch_size, length, ...).

    The columns are obs.*, action, reward, next_obs.* and terminated, of single steps; ``ended`` where the episode
    ended, ``first`` where a step does not go on what the one before it led to, and ``valid``, false where a window is
    longer than what there is: its last step is then repeated. A window starts anywhere, but as early as it must to be
    filled. The episode that follows another is the next that began after it and follows no other.
    """

    Config = SequenceConfig

    def __init__(self, config: SequenceConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._length, self._cross = config.length, config.cross_episodes
        self._next_episode, self._last_episode = (np.full(slots_for(config.size), NONE, np.int64) for _ in range(2))
        self._unfollowed: deque[int] = deque()

    @staticmethod
    def room(config: ReplayConfig, spec: Spec) -> Room:
        rows = Replay.room(config, spec)
        return Room(rows.memory + 2 * 8 * slots_for(config.size), rows.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        numbers = self._ring.add(trajectory)
        slots = self._ring.slots(numbers)
        self._next_episode[slots] = self._last_episode[slots] = NONE
        if self._cross:
            self._follow(trajectory, numbers)
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
        for ended, began in state["episodes"]:
            self._link(ended, began)

    def _follow(self, trajectory: Trajectory, numbers: Array) -> None:
        """Let an episode that begins follow the one that ended longest ago."""
        began = numbers[0]
        if self._ring.chain(numbers[:1])[0] == began >= self._ring.oldest:
            while self._unfollowed and self._unfollowed[0] < self._ring.oldest:
                self._unfollowed.popleft()
            if self._unfollowed:
                self._link(self._unfollowed.popleft(), began)
        if trajectory.ended:
            self._unfollowed.append(int(numbers[-1]))

    def _link(self, ended: int, began: int) -> None:
        slots = self._ring.slots(np.array([ended, began]))
        self._next_episode[slots[0]], self._last_episode[slots[1]] = began, ended

    def _windows(self, starts: Array) -> tuple[Array, Array]:
        """The steps of each window, and which of them are more than its last one repeated."""
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
        batch = self._ring.observations(numbers) | {f"next_{n}": c for n, c in self._ring.led_to(numbers).items()}
        batch |= {name: self._ring.column(name, numbers) for name in self._ring.names()}
        return batch | {"first": self._ring.chain(numbers) == numbers}
