"""Uniform replay buffer of one-step or n-step transitions; base class of the other replay buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from rl4sys.buffers.base import Batch, BufferBytes, BufferConfig, Demand
from rl4sys.buffers.ring import NONE, Ring, ring_bytes
from rl4sys.buffers.storage import Storage, allocator
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

Outcome: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]
"""Function from step numbers and their positions in the batch to rewards and termination flags."""


class UniformConfig(BufferConfig):
    """Options of the `uniform` buffer."""

    storage: Storage = "memory"
    """Location of stored steps: memory (RAM), or disk (memory-mapped files in the run directory)."""
    unstack: bool = False
    """Store each frame of stacked frames only once. Applies to observations with three or more axes, which must be
    frame stacks along the first axis."""


class UpdateSchedule:
    """Update schedule: ``gradient_steps`` batches are due after every ``train_frequency`` steps."""

    def __init__(self, demand: Demand) -> None:
        self._every, self._batches = demand.train_frequency, demand.gradient_steps
        self.next_update = max(demand.learning_starts, demand.train_frequency)

    def steps_to_next_update(self, seen: int) -> int:
        """Return the number of steps until the next batch is due, after ``seen`` steps so far; at least 1."""
        return max(1, self.next_update - seen)

    def due_batches(self, seen: int) -> Iterator[None]:
        """Yield None once for each batch that is due after ``seen`` steps."""
        while seen >= self.next_update:
            self.next_update += self._every
            for _ in range(self._batches):
                yield


class Replay:
    """Replay buffer of the newest transitions, sampled uniformly.

    Columns of a batch: obs.*, action, next_obs.*, terminated, reward (the discounted n-step sum) and discount (the
    factor of the value of next_obs). Steps of one episode stay linked even if they arrive in different trajectories,
    so n-step sums continue across trajectories.
    """

    Config: type[UniformConfig] = UniformConfig

    def __init__(self, config: UniformConfig, demand: Demand) -> None:
        self._demand, self._schedule = demand, UpdateSchedule(demand)
        self._ring = Ring(config.size, allocator(config.storage, demand.resources.scratch), unstack=config.unstack)

    @staticmethod
    def required_bytes(config: UniformConfig, spec: Spec) -> BufferBytes:
        return ring_bytes(config.size, spec, config.storage, unstack=config.unstack)

    @property
    def num_stored(self) -> int:
        """Number of stored steps."""
        return self._ring.num_stored

    def add(self, trajectory: Trajectory, version: int) -> int:
        self._ring.add(trajectory)
        return len(trajectory)

    def steps_to_next_update(self) -> int:
        return self._schedule.steps_to_next_update(self._ring.seen)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in self._schedule.due_batches(self._ring.seen):
            yield self.sample(rng, self._demand.batch_size)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        """Return a batch of ``rows`` transitions, independent of the update schedule."""
        return self._transitions(self._draw(rng, rows), self._recorded)

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Ignore feedback, because sampling is uniform."""

    def state(self) -> State:
        return {"ring": self._ring.state(), "due_at": self._schedule.next_update}

    def restore(self, state: State) -> None:
        self._ring.restore(state["ring"])
        self._schedule.next_update = int(state["due_at"])

    def _draw(self, rng: np.random.Generator, rows: int) -> Array:
        """Draw ``rows`` numbers of stored steps uniformly, with replacement."""
        return self._ring.oldest + rng.integers(self._ring.num_stored, size=rows)

    def _recorded(self, numbers: Array, positions: Array) -> tuple[Array, Array]:
        return self._ring.column("reward", numbers), self._ring.column("terminated", numbers)

    def _transitions(self, numbers: Array, outcome: Outcome) -> dict[str, Array]:
        """Return the n-step transitions that start at the given steps."""
        final, sums = look_ahead(self._ring, numbers, self._demand, outcome)
        names = (name for name in self._ring.names() if name not in ("ended", *sums))
        batch = self._ring.observations(numbers) | {name: self._ring.column(name, numbers) for name in names}
        return batch | {f"next_{name}": column for name, column in self._ring.next_observations(final).items()} | sums


def look_ahead(ring: Ring, numbers: Array, demand: Demand, outcome: Outcome) -> tuple[Array, dict[str, Array]]:
    """Return the last step of each n-step return, and the columns reward, discount and terminated."""
    positions, final = np.arange(len(numbers)), numbers.copy()
    total, terminated = (column.copy() for column in outcome(numbers, positions))
    discount = np.full(len(numbers), demand.gamma, np.float32)
    for _ in range(demand.n_step - 1):
        following = ring.successor(final)
        active = positions[(following != NONE) & ~terminated]
        final[active] = following[active]
        reward, terminated[active] = outcome(final[active], active)
        total[active] += discount[active] * reward
        discount[active] *= demand.gamma
    return final, {"reward": total, "discount": discount, "terminated": terminated}
