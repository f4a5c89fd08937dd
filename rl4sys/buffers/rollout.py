"""Rollout buffer for on-policy algorithms: one batch per rollout, which is then discarded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferBytes, BufferConfig, Demand, space_bytes, transitions
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import MEMORY, Trajectory


class RolloutConfig(BufferConfig):
    """Options of the `trajectory` buffer."""

    max_staleness: int = Field(default=0, ge=0)
    """Maximum number of policy versions that a trajectory may lag behind the learner; staler ones are rejected."""
    episodes: int | None = Field(default=None, gt=0)
    """Number of ended episodes that complete a rollout even with fewer than `size` steps; null uses `size` alone."""


_OTHER_COLUMNS = 4 + 4 + 3 * 1 + 8
"""Bytes per step of reward, log_prob, the flags terminated, ended and last, and staleness."""


class Rollout:
    """Collects one rollout; rejects trajectories that are too stale (``max_staleness``) or of a future version.

    A batch is the whole rollout in the order of its trajectories: the columns of `transitions`, and ``staleness``,
    the number of versions between the acting policy and the learner. If the policy is recurrent, ``memory`` has one
    row per trajectory: the recurrent state before its first step.
    """

    Config = RolloutConfig

    def __init__(self, config: RolloutConfig, demand: Demand) -> None:
        self._size, self._max_staleness, self._episodes = config.size, config.max_staleness, config.episodes
        self._columns: dict[str, Array] = {}
        self._memories: list[Array] = []
        self._filled = self._ended = 0

    @staticmethod
    def required_bytes(config: RolloutConfig, spec: Spec) -> BufferBytes:
        seen = space_bytes(*spec.observation.values())
        return BufferBytes(config.size * (2 * seen + space_bytes(spec.action) + _OTHER_COLUMNS))

    def add(self, trajectory: Trajectory, version: int) -> int:
        staleness = version - trajectory.version
        # A future version belongs to another learner, or to this one before it was restored from a checkpoint.
        if not 0 <= staleness <= self._max_staleness:
            return 0
        rows = transitions(trajectory) | {"staleness": np.full(len(trajectory), staleness, np.int64)}
        end = self._filled + len(trajectory)
        for name, column in rows.items():
            self._columns[name] = _grown(self._column(name, column), end)
            self._columns[name][self._filled : end] = column
        self._filled = end
        self._memories += [trajectory.columns[MEMORY]] if MEMORY in trajectory.columns else []
        self._ended += int(rows["ended"].sum())
        return len(trajectory)

    def steps_to_next_update(self) -> int:
        return max(1, self._size - self._filled)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        if self._complete():
            filled, self._filled, self._ended = self._filled, 0, 0
            memory, self._memories = self._memory(), []
            yield {name: column[:filled] for name, column in self._columns.items()} | memory

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Ignore feedback, because the rows of the batch are already discarded."""

    def state(self) -> State:
        columns = {name: column[: self._filled].copy() for name, column in self._columns.items()}
        return {"columns": columns, "memory": self._memory()}

    def restore(self, state: State) -> None:
        self._columns = {name: np.array(column) for name, column in state["columns"].items()}
        self._memories = [np.array(column) for column in state.get("memory", {}).values()]
        self._filled = len(next(iter(self._columns.values()))) if self._columns else 0
        self._ended = int(self._columns["ended"].sum()) if self._columns else 0

    def _complete(self) -> bool:
        return self._filled >= self._size or (self._episodes is not None and self._ended >= self._episodes)

    def _memory(self) -> dict[str, Array]:
        return {MEMORY: np.concatenate(self._memories)} if self._memories else {}

    def _column(self, name: str, rows: Array) -> Array:
        if name not in self._columns:
            self._columns[name] = _zero_rows(rows, self._size)
        return self._columns[name]


def _zero_rows(like: Array, rows: int) -> Array:
    """Return ``rows`` rows of zeros with the row shape and dtype of ``like``; RAM is allocated as rows are written."""
    return np.zeros((rows, *like.shape[1:]), like.dtype)


def _grown(column: Array, rows: int) -> Array:
    """Return the column if it has at least ``rows`` rows, else a copy with at least twice as many."""
    if rows <= len(column):
        return column
    larger = _zero_rows(column, max(rows, 2 * len(column)))
    larger[: len(column)] = column
    return larger
