"""Uniform replay of transitions, of one step or several; the other replaying buffers differ in what they draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from rl4sys.buffers.base import Batch, BufferConfig, Demand, Room
from rl4sys.buffers.ring import NONE, Ring, ring_room
from rl4sys.buffers.storage import Storage, allocator
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

Outcome: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]
"""Steps, and which places of a batch they are for → their rewards, and whether they terminate their episode."""


class ReplayConfig(BufferConfig):
    """Options of the `uniform` buffer."""

    storage: Storage = "memory"
    """Where steps are kept: memory, or disk, in files of the run's directory that the system pages in and out."""
    unstack: bool = False
    """Keep single frames of observations with three or more axes, which are then frames stacked along the first."""


class Due:
    """When batches are due: ``gradient_steps`` of them for every ``train_frequency`` steps."""

    def __init__(self, demand: Demand) -> None:
        self._every, self._batches = demand.train_frequency, demand.gradient_steps
        self.at = max(demand.learning_starts, demand.train_frequency)

    def wants(self, seen: int) -> int:
        return max(1, self.at - seen)

    def take(self, seen: int) -> Iterator[None]:
        """One for each batch due after ``seen`` steps."""
        while seen >= self.at:
            self.at += self._every
            for _ in range(self._batches):
                yield


class Replay:
    """A ring of the newest transitions; owes ``gradient_steps`` batches for every ``train_frequency`` steps.

    Rows of a batch: obs.*, action, next_obs.*, terminated, reward (the discounted sum over the steps taken
    together) and discount (what the value of next_obs is multiplied by). Steps of one episode stay linked
    even where they arrived in different trajectories, so n-step sums never stop at a trajectory's edge.
    """

    Config: type[ReplayConfig] = ReplayConfig

    def __init__(self, config: ReplayConfig, demand: Demand) -> None:
        self._demand, self._due = demand, Due(demand)
        self._ring = Ring(config.size, allocator(config.storage, demand.provided.scratch), unstack=config.unstack)

    @staticmethod
    def room(config: ReplayConfig, spec: Spec) -> Room:
        return ring_room(config.size, spec, config.storage, unstack=config.unstack)

    @property
    def held(self) -> int:
        """Steps to draw from."""
        return self._ring.held

    def add(self, trajectory: Trajectory, version: int) -> int:
        self._ring.add(trajectory)
        return len(trajectory)

    def wants(self) -> int:
        return self._due.wants(self._ring.seen)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in self._due.take(self._ring.seen):
            yield self.sample(rng, self._demand.batch_size)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        """A batch of so many rows, whether or not one is due."""
        return self._transitions(self._draw(rng, rows), self._recorded)

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Nothing to remember: every row is as likely as the next."""

    def state(self) -> State:
        return {"ring": self._ring.state(), "due_at": self._due.at}

    def restore(self, state: State) -> None:
        self._ring.restore(state["ring"])
        self._due.at = int(state["due_at"])

    def _draw(self, rng: np.random.Generator, rows: int) -> Array:
        """The numbers of steps that are held, each as likely as the next."""
        return self._ring.oldest + rng.integers(self._ring.held, size=rows)

    def _recorded(self, numbers: Array, places: Array) -> tuple[Array, Array]:
        return self._ring.column("reward", numbers), self._ring.column("terminated", numbers)

    def _transitions(self, numbers: Array, outcome: Outcome) -> dict[str, Array]:
        """What was seen and done at each step, and what the next ``n_step`` led to."""
        final, sums = look_ahead(self._ring, numbers, self._demand, outcome)
        kept = (name for name in self._ring.names() if name not in ("ended", *sums))
        batch = self._ring.observations(numbers) | {name: self._ring.column(name, numbers) for name in kept}
        return batch | {f"next_{name}": column for name, column in self._ring.led_to(final).items()} | sums


def look_ahead(ring: Ring, numbers: Array, demand: Demand, outcome: Outcome) -> tuple[Array, dict[str, Array]]:
    """The steps where sums of up to ``n_step`` rewards stop; the sums, the discount from there on, and if it ends."""
    places, final = np.arange(len(numbers)), numbers.copy()
    total, terminated = (column.copy() for column in outcome(numbers, places))
    discount = np.full(len(numbers), demand.gamma, np.float32)
    for _ in range(demand.n_step - 1):
        following = ring.successor(final)
        going = places[(following != NONE) & ~terminated]
        final[going] = following[going]
        reward, terminated[going] = outcome(final[going], going)
        total[going] += discount[going] * reward
        discount[going] *= demand.gamma
    return final, {"reward": total, "discount": discount, "terminated": terminated}
