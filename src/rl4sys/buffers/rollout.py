"""Fresh experience only: one batch when enough has come in, then forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferConfig, Demand, Room, space_bytes, transitions
from rl4sys.buffers.columns import grow_to, like
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import MEMORY, Trajectory


class RolloutConfig(BufferConfig):
    """Options of the `trajectory` buffer."""

    max_staleness: int = Field(default=0, ge=0)
    """Versions a trajectory may lag behind the learner and still be learnt from."""
    episodes: int | None = Field(default=None, gt=0)
    """Episodes whose end completes a rollout that is shorter than `size`; null to wait for `size` always."""


_BESIDES = 4 + 4 + 3 * 1 + 8
"""Bytes of reward, log_prob, the flags terminated, ended and last, and staleness."""


class Rollout:
    """Refuses trajectories more than ``max_staleness`` versions behind the learner, or ahead of it.

    A batch is the whole rollout, trajectory after trajectory: the rows of `transitions`, and ``staleness``, the
    versions that the learner has made since the one that acted. Where the policy has memory, ``memory`` has a row for
    each trajectory, in their order: what the policy remembered before its first step.
    """

    Config = RolloutConfig

    def __init__(self, config: RolloutConfig, demand: Demand) -> None:
        self._size, self._max_staleness, self._episodes = config.size, config.max_staleness, config.episodes
        self._columns: dict[str, Array] = {}
        self._memories: list[Array] = []
        self._filled = self._ended = 0

    @staticmethod
    def room(config: RolloutConfig, spec: Spec) -> Room:
        seen = space_bytes(*spec.observation.values())
        return Room(config.size * (2 * seen + space_bytes(spec.action) + _BESIDES))

    def add(self, trajectory: Trajectory, version: int) -> int:
        staleness = version - trajectory.version
        # A version the learner has yet to make is another learner's, or its own from before it was set back.
        if not 0 <= staleness <= self._max_staleness:
            return 0
        rows = transitions(trajectory) | {"staleness": np.full(len(trajectory), staleness, np.int64)}
        end = self._filled + len(trajectory)
        for name, column in rows.items():
            self._columns[name] = grow_to(self._column(name, column), end)
            self._columns[name][self._filled : end] = column
        self._filled = end
        self._memories += [trajectory.columns[MEMORY]] if MEMORY in trajectory.columns else []
        self._ended += int(rows["ended"].sum())
        return len(trajectory)

    def wants(self) -> int:
        return max(1, self._size - self._filled)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        if self._complete():
            filled, self._filled, self._ended = self._filled, 0, 0
            memory, self._memories = self._memory(), []
            yield {name: column[:filled] for name, column in self._columns.items()} | memory

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Nothing to remember: the rows are gone."""

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
            self._columns[name] = like(rows, self._size)
        return self._columns[name]
