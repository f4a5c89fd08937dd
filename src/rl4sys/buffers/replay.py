"""Uniform replay of transitions, of one step or several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl4sys.buffers.base import Batch, BufferConfig, Demand, transitions
from rl4sys.buffers.columns import like
from rl4sys.spec import Array, Columns, State
from rl4sys.trajectory import Trajectory

_NOT_REPLAYED = ("log_prob", "last")
_NONE = -1


class Replay:
    """A ring of the newest transitions; owes ``gradient_steps`` batches for every ``train_frequency`` steps.

    Rows of a batch: obs.*, action, next_obs.*, terminated, reward (the discounted sum over the steps taken
    together) and discount (what the value of next_obs is multiplied by). Steps of one episode stay linked
    even where they arrived in different trajectories, so n-step sums never stop at a trajectory's edge.
    """

    Config = BufferConfig

    def __init__(self, config: BufferConfig, demand: Demand) -> None:
        self._capacity, self._demand = config.size, demand
        self._columns: dict[str, Array] = {}
        self._successor = np.full(config.size, _NONE, np.int64)
        self._open_episodes: dict[int, int] = {}
        self._seen = 0
        self._due_at = max(demand.learning_starts, demand.train_frequency)

    def add(self, trajectory: Trajectory, version: int) -> int:
        numbers = self._seen + np.arange(len(trajectory))
        # Of a trajectory longer than the ring only its newest steps can stay.
        kept = slice(max(0, len(trajectory) - self._capacity), None)
        slots = numbers[kept] % self._capacity
        for name, rows in transitions(trajectory).items():
            if name not in _NOT_REPLAYED:
                self._column(name, rows)[slots] = rows[kept]
        self._link(trajectory, numbers[kept])
        self._seen += len(trajectory)
        return len(trajectory)

    def wants(self) -> int:
        return max(1, self._due_at - self._seen)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        while self._seen >= self._due_at:
            self._due_at += self._demand.train_frequency
            for _ in range(self._demand.gradient_steps):
                yield self._sample(rng)

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Nothing to remember: every row is as likely as the next."""

    def state(self) -> State:
        held = min(self._seen, self._capacity)
        return {
            "columns": {name: column[:held].copy() for name, column in self._columns.items()},
            "successor": self._successor[:held].copy(),
            "open_episodes": np.array(list(self._open_episodes.items()), np.int64).reshape(-1, 2),
            "seen": self._seen,
            "due_at": self._due_at,
        }

    def restore(self, state: State) -> None:
        held = len(state["successor"])
        self._columns = {name: like(column, self._capacity) for name, column in state["columns"].items()}
        for name, column in state["columns"].items():
            self._columns[name][:held] = column
        self._successor[:held] = state["successor"]
        self._open_episodes = {int(episode): int(number) for episode, number in state["open_episodes"]}
        self._seen, self._due_at = int(state["seen"]), int(state["due_at"])

    def _column(self, name: str, rows: Array) -> Array:
        if name not in self._columns:
            self._columns[name] = like(rows, self._capacity)
        return self._columns[name]

    def _link(self, trajectory: Trajectory, numbers: Array) -> None:
        """Note for every step the number of the one that follows it in the same episode."""
        self._successor[numbers[:-1] % self._capacity] = numbers[1:]
        self._successor[numbers[-1] % self._capacity] = _NONE
        before = self._open_episodes.pop(trajectory.episode, _NONE)
        if trajectory.offset > 0 and before >= max(0, self._seen + len(trajectory) - self._capacity):
            self._successor[before % self._capacity] = numbers[0]
        if not trajectory.ended:
            self._open_episodes[trajectory.episode] = int(numbers[-1])
            self._forget_overwritten(int(numbers[-1]) - self._capacity)

    def _forget_overwritten(self, newest_lost: int) -> None:
        """Episodes whose system fell silent would otherwise stay open for ever."""
        oldest = next(iter(self._open_episodes))
        if self._open_episodes[oldest] <= newest_lost:
            del self._open_episodes[oldest]

    def _sample(self, rng: np.random.Generator) -> Batch:
        rows = rng.integers(min(self._seen, self._capacity), size=self._demand.batch_size)
        reward, final, discount = self._look_ahead(rows)
        batch = {name: column[rows] for name, column in self._columns.items() if not name.startswith("next_")}
        batch |= {name: column[final] for name, column in self._columns.items() if name.startswith("next_")}
        return batch | {"reward": reward, "discount": discount, "terminated": self._columns["terminated"][final]}

    def _look_ahead(self, rows: Array) -> tuple[Array, Array, Array]:
        """Up to ``n_step`` rewards summed, the row where the sum stops, and the discount from there on."""
        rewards, gamma = self._columns["reward"], self._demand.gamma
        total, final = rewards[rows], rows.copy()
        discount = np.full(len(rows), gamma, np.float32)
        for _ in range(self._demand.n_step - 1):
            following = self._successor[final]
            going = following != _NONE
            final[going] = following[going] % self._capacity
            total[going] += discount[going] * rewards[final[going]]
            discount[going] *= gamma
        return total, final, discount
