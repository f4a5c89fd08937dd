"""Fresh experience only: one batch when enough has come in, then forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferConfig, Demand, transitions
from rl4sys.buffers.columns import grow_to, like
from rl4sys.spec import Array, Columns, State
from rl4sys.trajectory import Trajectory


class RolloutConfig(BufferConfig):
    """Options of the `trajectory` buffer."""

    max_staleness: int = Field(default=0, ge=0)
    """Versions a trajectory may lag behind the learner and still be learnt from."""


class Rollout:
    """Refuses trajectories more than ``max_staleness`` versions behind the learner.

    A batch is the whole rollout, trajectory after trajectory: the rows of `transitions`.
    """

    Config = RolloutConfig

    def __init__(self, config: RolloutConfig, demand: Demand) -> None:
        self._size, self._max_staleness = config.size, config.max_staleness
        self._columns: dict[str, Array] = {}
        self._filled = 0

    def add(self, trajectory: Trajectory, version: int) -> int:
        if trajectory.version < version - self._max_staleness:
            return 0
        rows = transitions(trajectory)
        end = self._filled + len(trajectory)
        if not self._columns:
            self._columns = {name: like(column, self._size) for name, column in rows.items()}
        for name, column in rows.items():
            self._columns[name] = grow_to(self._columns[name], end)
            self._columns[name][self._filled : end] = column
        self._filled = end
        return len(trajectory)

    def wants(self) -> int:
        return self._size - self._filled

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        if self._filled >= self._size:
            filled, self._filled = self._filled, 0
            yield {name: column[:filled] for name, column in self._columns.items()}

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Nothing to remember: the rows are gone."""

    def state(self) -> State:
        return {"columns": {name: column[: self._filled].copy() for name, column in self._columns.items()}}

    def restore(self, state: State) -> None:
        self._columns = {name: np.array(column) for name, column in state["columns"].items()}
        self._filled = len(next(iter(self._columns.values()))) if self._columns else 0
