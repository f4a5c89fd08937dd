"""Replay buffer that mixes several pools in given proportions, such as demonstrations and own experience."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from rl4sys.buffers.base import Batch, BufferBytes, BufferConfig, Demand
from rl4sys.buffers.uniform import Replay, UpdateSchedule
from rl4sys.config import Config, parse
from rl4sys.dataset import DatasetConfig
from rl4sys.errors import ConfigError
from rl4sys.registry import BUFFERS
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

_POOL, _WEIGHT, _INDEX = "pool", "weight", "index"
_POOL_TYPES = ("uniform", "prioritized", "her")


class PoolConfig(Config):
    """Options of one pool of a `union` buffer."""

    share: float = Field(gt=0)
    """Share of the pool in every batch, relative to the shares of the other pools that are not empty."""
    buffer: SerializeAsAny[BufferConfig]
    """Buffer of the pool and its options: uniform (default), prioritized or her."""
    dataset: DatasetConfig | None = None
    """Dataset that initially fills the pool, such as demonstrations; null starts with an empty pool."""

    @field_validator("buffer", mode="before")
    @classmethod
    def _parse_buffer(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        kind = value.get("type", _POOL_TYPES[0])
        if kind not in _POOL_TYPES:
            raise ValueError(f"the buffer type of a pool is {kind!r:.80}; expected one of {', '.join(_POOL_TYPES)}")
        try:
            return parse(BUFFERS.get(kind).Config, {"type": kind, **value})
        except ConfigError as problem:
            raise ValueError(str(problem)) from problem


class UnionConfig(BufferConfig):
    """Options of the `union` buffer."""

    size: int = Field(default=100_000, gt=0, le=10**9)
    """Default capacity of a pool in steps."""
    pools: dict[str, PoolConfig] = Field(min_length=1)
    """Pools of the union, by name."""
    receives: str = "own"
    """Name of the pool that stores new trajectories; the other pools do not change."""

    @model_validator(mode="before")
    @classmethod
    def _set_default_sizes(cls, value: Any) -> Any:
        pools = value.get("pools") if isinstance(value, Mapping) else None
        if not isinstance(pools, Mapping):
            return value
        size = value.get("size", cls.model_fields["size"].default)
        return {**value, "pools": {name: _with_size(pool, size) for name, pool in pools.items()}}

    @model_validator(mode="after")
    def _check_receiver(self) -> Self:
        if self.receives not in self.pools:
            raise ValueError(f"receives is {self.receives!r:.80}; expected one of the pools: {', '.join(self.pools)}")
        return self


class Union:
    """Replay buffer of several pools. Batches have the columns of the pools, and ``pool``, the pool index of each row.

    Rows of pools without priorities have weight 1. The share of an empty pool is divided among the others.
    """

    Config = UnionConfig

    def __init__(self, config: UnionConfig, demand: Demand) -> None:
        self._demand, self._schedule, self._seen = demand, UpdateSchedule(demand), 0
        self._pools: dict[str, Replay] = {
            name: BUFFERS.get(pool.buffer.type)(pool.buffer, demand) for name, pool in config.pools.items()
        }
        self._shares = np.array([pool.share for pool in config.pools.values()])
        self._receiver = self._pools[config.receives]
        for name, trajectories in demand.resources.pools.items():
            self._fill(name, trajectories)

    @staticmethod
    def required_bytes(config: UnionConfig, spec: Spec) -> BufferBytes:
        buffers = [pool.buffer for pool in config.pools.values()]
        sizes = [BUFFERS.get(buffer.type).required_bytes(buffer, spec) for buffer in buffers]
        return BufferBytes(sum(size.ram for size in sizes), sum(size.disk for size in sizes))

    def add(self, trajectory: Trajectory, version: int) -> int:
        self._seen += len(trajectory)
        return self._receiver.add(trajectory, version)

    def steps_to_next_update(self) -> int:
        return self._schedule.steps_to_next_update(self._seen)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in self._schedule.due_batches(self._seen):
            yield self._sample(rng)

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        for index, pool in enumerate(self._pools.values()):
            rows = batch[_POOL] == index
            if rows.any():
                pool.feedback(_select(batch, rows), _select(feedback, rows))

    def state(self) -> State:
        pools = {name: pool.state() for name, pool in self._pools.items()}
        return {"pools": pools, "seen": self._seen, "due_at": self._schedule.next_update}

    def restore(self, state: State) -> None:
        for name, pool in self._pools.items():
            pool.restore(state["pools"][name])
        self._seen, self._schedule.next_update = int(state["seen"]), int(state["due_at"])

    def _fill(self, name: str, trajectories: Any) -> None:
        if name not in self._pools:
            raise ConfigError(
                f"trajectories were given for pool {name!r}, but buffer.pools has no such pool; pools: "
                f"{', '.join(self._pools)}"
            )
        for trajectory in trajectories:
            self._pools[name].add(trajectory, version=0)

    def _sample(self, rng: np.random.Generator) -> Batch:
        pools = [(index, pool) for index, pool in enumerate(self._pools.values()) if pool.num_stored]
        counts = _split(self._demand.batch_size, self._shares[[index for index, _ in pools]], rng.random())
        parts = [
            _with_pool_columns(pool.sample(rng, rows), index, rows)
            for (index, pool), rows in zip(pools, counts, strict=True)
            if rows
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _with_size(pool: Any, size: Any) -> Any:
    if not isinstance(pool, Mapping) or not isinstance(pool.get("buffer", {}), Mapping):
        return pool
    return {**pool, "buffer": {"size": size, **pool.get("buffer", {})}}


def _split(rows: int, shares: Array, offset: float) -> list[int]:
    """Split a number of rows in proportion to the shares.

    ``offset`` is random (0 to 1) and decides the rounding, so the split is exact on average.
    """
    inner = np.floor(rows * np.cumsum(shares)[:-1] / shares.sum() + offset).astype(int)
    return [int(count) for count in np.diff(np.concatenate([[0], inner, [rows]]))]


def _with_pool_columns(batch: Batch, index: int, rows: int) -> dict[str, Array]:
    """Add the columns pool, weight and index to the batch of one pool."""
    defaults: dict[str, Array] = {_WEIGHT: np.ones(rows, np.float32), _INDEX: np.full(rows, -1, np.int64)}
    return {**defaults, **batch, _POOL: np.full(rows, index, np.int64)}


def _select(columns: Columns, rows: Array) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}
