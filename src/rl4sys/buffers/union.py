"""Several pools of experience in one batch, in given proportions, such as demonstrations beside one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from rl4sys.buffers.base import Batch, BufferConfig, Demand, Room
from rl4sys.buffers.replay import Due, Replay
from rl4sys.config import Config, parse
from rl4sys.dataset import DatasetConfig
from rl4sys.errors import ConfigError
from rl4sys.registry import BUFFERS
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

_POOL, _WEIGHT, _INDEX = "pool", "weight", "index"
_KINDS = ("uniform", "prioritized", "her")


class PoolConfig(Config):
    """One pool of a `union`."""

    share: float = Field(gt=0)
    """Its part of every batch, in proportion to those of the others that hold anything."""
    buffer: SerializeAsAny[BufferConfig]
    """The buffer that holds it: uniform, which is the default, prioritized or her, with its options."""
    dataset: DatasetConfig | None = None
    """What it holds from the start, such as demonstrations; null for nothing."""

    @field_validator("buffer", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        kind = value.get("type", _KINDS[0])
        if kind not in _KINDS:
            raise ValueError(f"a pool is one of {', '.join(_KINDS)}, not {kind!r:.80}")
        try:
            return parse(BUFFERS.get(kind).Config, {"type": kind, **value})
        except ConfigError as problem:
            raise ValueError(str(problem)) from problem


class UnionConfig(BufferConfig):
    """Options of the `union` buffer."""

    size: int = Field(default=100_000, gt=0, le=10**9)
    """Steps of a pool whose buffer does not say how many it holds."""
    pools: dict[str, PoolConfig] = Field(min_length=1)
    """The pools by name."""
    receives: str = "own"
    """The pool that new trajectories go to; the others stay as they were given."""

    @model_validator(mode="before")
    @classmethod
    def _give_sizes(cls, value: Any) -> Any:
        pools = value.get("pools") if isinstance(value, Mapping) else None
        if not isinstance(pools, Mapping):
            return value
        size = value.get("size", cls.model_fields["size"].default)
        return {**value, "pools": {name: _with_size(pool, size) for name, pool in pools.items()}}

    @model_validator(mode="after")
    def _check_receiver(self) -> Self:
        if self.receives not in self.pools:
            raise ValueError(
                f"receives is {self.receives!r:.80}; it should be one of the pools: {', '.join(self.pools)}"
            )
        return self


class Union:
    """Batches as those of the pools, with ``pool``, the place of each row's pool among them.

    A row of a pool without priorities has the weight 1. A pool that holds nothing leaves its share to the others.
    """

    Config = UnionConfig

    def __init__(self, config: UnionConfig, demand: Demand) -> None:
        self._demand, self._due, self._seen = demand, Due(demand), 0
        self._pools: dict[str, Replay] = {
            name: BUFFERS.get(pool.buffer.type)(pool.buffer, demand) for name, pool in config.pools.items()
        }
        self._shares = np.array([pool.share for pool in config.pools.values()])
        self._own = self._pools[config.receives]
        for name, trajectories in demand.provided.pools.items():
            self._fill(name, trajectories)

    @staticmethod
    def room(config: UnionConfig, spec: Spec) -> Room:
        buffers = [pool.buffer for pool in config.pools.values()]
        rooms = [BUFFERS.get(buffer.type).room(buffer, spec) for buffer in buffers]
        return Room(sum(room.memory for room in rooms), sum(room.disk for room in rooms))

    def add(self, trajectory: Trajectory, version: int) -> int:
        self._seen += len(trajectory)
        return self._own.add(trajectory, version)

    def wants(self) -> int:
        return self._due.wants(self._seen)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in self._due.take(self._seen):
            yield self._sample(rng)

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        for place, pool in enumerate(self._pools.values()):
            rows = batch[_POOL] == place
            if rows.any():
                pool.feedback(_only(batch, rows), _only(feedback, rows))

    def state(self) -> State:
        pools = {name: pool.state() for name, pool in self._pools.items()}
        return {"pools": pools, "seen": self._seen, "due_at": self._due.at}

    def restore(self, state: State) -> None:
        for name, pool in self._pools.items():
            pool.restore(state["pools"][name])
        self._seen, self._due.at = int(state["seen"]), int(state["due_at"])

    def _fill(self, name: str, trajectories: Any) -> None:
        if name not in self._pools:
            raise ConfigError(f"there is content for a pool {name!r}; buffer.pools has: {', '.join(self._pools)}")
        for trajectory in trajectories:
            self._pools[name].add(trajectory, version=0)

    def _sample(self, rng: np.random.Generator) -> Batch:
        pools = [(place, pool) for place, pool in enumerate(self._pools.values()) if pool.held]
        counts = _split(self._demand.batch_size, self._shares[[place for place, _ in pools]], rng.random())
        parts = [
            _marked(pool.sample(rng, rows), place, rows)
            for (place, pool), rows in zip(pools, counts, strict=True)
            if rows
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _with_size(pool: Any, size: Any) -> Any:
    if not isinstance(pool, Mapping) or not isinstance(pool.get("buffer", {}), Mapping):
        return pool
    return {**pool, "buffer": {"size": size, **pool.get("buffer", {})}}


def _split(rows: int, shares: Array, chance: float) -> list[int]:
    """So many rows in proportion to the shares; where that gives no whole numbers, one more or less by chance."""
    inner = np.floor(rows * np.cumsum(shares)[:-1] / shares.sum() + chance).astype(int)
    return [int(count) for count in np.diff(np.concatenate([[0], inner, [rows]]))]


def _marked(batch: Batch, place: int, rows: int) -> dict[str, Array]:
    """The batch of one pool with the columns that all have."""
    usual: dict[str, Array] = {_WEIGHT: np.ones(rows, np.float32), _INDEX: np.full(rows, -1, np.int64)}
    return {**usual, **batch, _POOL: np.full(rows, place, np.int64)}


def _only(columns: Columns, rows: Array) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}
