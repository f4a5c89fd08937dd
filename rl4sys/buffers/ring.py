"""Ring buffer of the newest steps. Each observation is stored once; checkpoints share unchanged blocks of steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl4sys.buffers.base import BufferBytes, space_bytes, transitions
from rl4sys.buffers.storage import Allocate, Storage
from rl4sys.errors import CheckpointError, SpecError
from rl4sys.segments import Segment
from rl4sys.spec import Array, Columns, Space, Spec, State
from rl4sys.trajectory import OBSERVATION, Trajectory

NONE = -1
"""Marker for a missing step number or table row."""

_NOT_STORED = ("log_prob", "last")
_CHAIN, _TAIL, _HEAD = "ring.chain", "ring.tail", "ring.head"
_BLOCKS, _MIN_BLOCK = 128, 16
_MIN_FRAME_AXES = 3


class Ring:
    """Ring of the newest ``capacity`` steps, addressed by consecutive step numbers.

    The next observation of a step is the observation of its successor. If a step has no successor, or the
    observation of the successor differs, the next observation is stored separately, as the step's *tail*. Consecutive
    steps of one episode form a *chain*, identified by the number of its first step, even if the steps arrive in
    different trajectories.

    With ``unstack``, observations with three or more axes are frame stacks along the first axis that shift by one frame
    per step. Each step stores only the newest frame; the first step of a chain also stores the whole stack, its *head*.
    """

    def __init__(self, capacity: int, allocate: Allocate, *, unstack: bool = False) -> None:
        self._capacity, self._allocate, self._unstack = capacity, allocate, unstack
        self._block, self._slots = block_size(capacity), slots_for(capacity)
        self._columns: dict[str, Array] = {}
        self._depths: dict[str, int] = {}
        self._chain, self._successor, self._before = (np.full(self._slots, NONE, np.int64) for _ in range(3))
        self._tails, self._heads = (_SparseRows(self._slots, allocate) for _ in range(2))
        self._open: dict[int, tuple[int, int]] = {}
        self._segments: dict[int, Segment] = {}
        self.seen = 0

    @property
    def oldest(self) -> int:
        """Number of the oldest stored step."""
        return max(0, self.seen - self._capacity)

    @property
    def num_stored(self) -> int:
        return self.seen - self.oldest

    def slots(self, numbers: Array) -> Array:
        return numbers % self._slots

    def add(self, trajectory: Trajectory) -> Array:
        """Store all steps of a trajectory and return their step numbers."""
        first, before = self.seen, self._step_before(trajectory)
        rows = _rows_of(trajectory)
        for name, column in rows.items():
            self._allocate_column(name, column)
        self._check_frames(trajectory)
        chain = first if before == NONE else int(self._chain[before % self._slots])
        for part in self._parts(len(trajectory)):
            self._write(rows, part, chain)
            if part.start == 0:
                self._link_first(trajectory, before)
        self.seen += len(trajectory)
        self._link_last(trajectory)
        return np.arange(first, self.seen)

    def column(self, name: str, numbers: Array) -> Array:
        return self._columns[name][self.slots(numbers)]

    def names(self) -> list[str]:
        """Return the names of all columns other than observations."""
        return [name for name in self._columns if not name.startswith(OBSERVATION)]

    def chain(self, numbers: Array) -> Array:
        return self._chain[self.slots(numbers)]

    def successor(self, numbers: Array) -> Array:
        """Return the number of the next step of the same episode, or `NONE`."""
        return self._successor[self.slots(numbers)]

    def before(self, numbers: Array) -> Array:
        """Return the number of the previous step of the same episode, or `NONE`."""
        found = self._before[self.slots(numbers)]
        return np.where(found >= self.oldest, found, NONE)

    def observations(self, numbers: Array) -> dict[str, Array]:
        """Return the observation of each step, by column name."""
        return {name: self._observation(name, self.slots(numbers)) for name in self._observation_names()}

    def next_observations(self, numbers: Array) -> dict[str, Array]:
        """Return the next observation of each step, by column name."""
        slots, following = self.slots(numbers), self.slots(self.successor(numbers))
        has_tail = self._tails.has(slots)
        found = {name: self._observation(name, following) for name in self._observation_names()}
        for name, column in found.items():
            column[has_tail] = self._tails.get(name, slots[has_tail])
        return found

    def state(self) -> State:
        first = self.oldest // self._block
        complete = self.seen // self._block
        self._segments = {block: self._segments.get(block) or self._segment(block) for block in range(first, complete)}
        episodes = [(episode, *place) for episode, place in self._open.items()]
        return {
            "capacity": self._capacity,
            "seen": self.seen,
            "first": first * self._block,
            "segments": list(self._segments.values()),
            "newest": self._saved_rows(np.arange(complete * self._block, self.seen)),
            "open_episodes": np.array(episodes, np.int64).reshape(-1, 3),
            "open_tails": self._open_tails(np.arange(first * self._block, self.seen)),
            "cut_heads": self._cut_heads(np.arange(first * self._block, self.seen)),
        }

    def restore(self, state: State) -> None:
        if state["capacity"] != self._capacity:
            raise CheckpointError(
                f"the checkpoint has a buffer of {state['capacity']} steps, but buffer.size is {self._capacity}; "
                "resume with the buffer.size of the checkpoint"
            )
        self.seen = int(state["seen"])
        number = int(state["first"])
        for segment in state["segments"]:
            self._segments[number // self._block] = self._segment(number // self._block, segment.digest)
            number += self._restore_rows(segment.read(), number)
        self._restore_rows(state["newest"], number)
        self._restore_links(np.arange(int(state["first"]), self.seen))
        self._open = {int(episode): (int(number), int(offset)) for episode, number, offset in state["open_episodes"]}
        self._restore_sparse(self._tails, state["open_tails"], _TAIL)
        self._restore_sparse(self._heads, state["cut_heads"], _HEAD)

    def _observation_names(self) -> list[str]:
        return [name for name in self._columns if name.startswith(OBSERVATION)]

    def _allocate_column(self, name: str, column: Array) -> None:
        if name in self._columns:
            return
        if self._unstack and name.startswith(OBSERVATION) and column.ndim - 1 >= _MIN_FRAME_AXES:
            self._depths[name] = column.shape[1]
        shape = column.shape[2:] if name in self._depths else column.shape[1:]
        self._columns[name] = self._allocate((self._slots, *shape), column.dtype)

    def _step_before(self, trajectory: Trajectory) -> int:
        """Return the number of the stored step that this trajectory continues, or `NONE`."""
        number, offset = self._open.pop(trajectory.episode, (NONE, 0))
        follows = offset == trajectory.offset > 0
        stays = number >= max(0, self.seen + len(trajectory) - self._capacity)
        return number if follows and stays else NONE

    def _parts(self, length: int) -> Iterator[slice]:
        """Split ``length`` new steps into slices of contiguous slots, each at most half as long as the ring."""
        start = 0
        while start < length:
            slot = (self.seen + start) % self._slots
            end = min(length, start + self._slots // 2, start + self._slots - slot)
            yield slice(start, end)
            start = end

    def _write(self, rows: Columns, part: slice, chain: int) -> None:
        """Store a slice of a trajectory; in a full ring, this overwrites the oldest steps."""
        numbers = np.arange(self.seen + part.start, self.seen + part.stop)
        slot = (self.seen + part.start) % self._slots
        slots = slice(slot, slot + len(numbers))
        if self._depths:
            self._move_heads(numbers - self._slots)
            self._heads.drop(slots)
        self._tails.drop(slots)
        for name, column in rows.items():
            self._columns[name][slots] = column[part, -1] if name in self._depths else column[part]
        self._chain[slots], self._before[slots], self._successor[slots] = chain, numbers - 1, numbers + 1

    def _link_first(self, trajectory: Trajectory, before: int) -> None:
        first = self.seen % self._slots
        self._before[first] = before
        if before == NONE:
            self._heads.put_row(first, {name: trajectory.columns[name][0] for name in self._depths})
            return
        last = before % self._slots
        self._successor[last] = self.seen
        # If the first observation differs from the last one of the previous trajectory, both are stored.
        if all(np.array_equal(self._tails.row(n, last), trajectory.columns[n][0]) for n in self._observation_names()):
            self._tails.drop(slice(last, last + 1))

    def _link_last(self, trajectory: Trajectory) -> None:
        newest = self.seen - 1
        self._successor[newest % self._slots] = NONE
        self._tails.put_row(
            newest % self._slots, {name: trajectory.columns[name][-1] for name in self._observation_names()}
        )
        if not trajectory.ended:
            self._open[trajectory.episode] = newest, trajectory.offset + len(trajectory)
            self._close_overwritten(newest - self._capacity)

    def _close_overwritten(self, newest_lost: int) -> None:
        """Stop tracking the oldest open episode if its steps are overwritten; the episode may never continue."""
        oldest = next(iter(self._open))
        if self._open[oldest][0] <= newest_lost:
            del self._open[oldest]

    def _check_frames(self, trajectory: Trajectory) -> None:
        for name in self._depths:
            column = trajectory.columns[name]
            if not np.array_equal(column[1:, :-1], column[:-1, 1:]):
                raise SpecError(
                    f"buffer.unstack is true, but {name} is not a stack of frames that shifts by one frame per "
                    "step along its first axis; set buffer.unstack: false"
                )

    def _move_heads(self, overwritten: Array) -> None:
        """Move the heads of steps that will be overwritten: store the whole frame stack of each successor."""
        for number in overwritten[overwritten >= 0]:
            slot = self.slots(np.array([number]))
            following = self._successor[slot]
            if not self._heads.has(slot)[0] or following[0] == NONE:
                continue
            after = self.slots(following)
            stacks = {name: self._heads.get(name, slot)[:, 1:] for name in self._depths}
            newest = {name: self._columns[name][after][:, None] for name in self._depths}
            self._heads.put(after, {name: np.concatenate([stacks[name], newest[name]], 1) for name in stacks})

    def _observation(self, name: str, slots: Array) -> Array:
        if name not in self._depths:
            return self._columns[name][slots]
        frames, depth = self._columns[name], self._depths[name]
        stack = np.empty((len(slots), depth, *frames.shape[1:]), frames.dtype)
        pending = np.arange(len(slots))
        for frame in range(depth - 1, -1, -1):
            has_head = self._heads.has(slots)
            stack[pending[has_head], : frame + 1] = self._heads.get(name, slots[has_head])[:, depth - 1 - frame :]
            pending, slots = pending[~has_head], slots[~has_head]
            stack[pending, frame] = frames[slots]
            slots = self._before[slots] % self._slots
        return stack

    def _segment(self, block: int, digest: str | None = None) -> Segment:
        def read() -> Columns:
            assert block >= self.oldest // self._block, "segment rows were overwritten before they were read"
            return self._saved_rows(np.arange(block * self._block, (block + 1) * self._block))

        return Segment(read, digest)

    def _saved_rows(self, numbers: Array) -> dict[str, Array]:
        """Return the immutable data of steps: columns, tails of ended episodes, and heads of new chains."""
        if not len(numbers):
            return {}
        slots = self.slots(numbers)
        saved = {name: column[slots] for name, column in self._columns.items()}
        chain = self._chain[slots]
        tails, heads = numbers[saved["ended"]], numbers[chain == numbers]
        sparse = self._saved_sparse(self._tails, tails, _TAIL) | self._saved_sparse(self._heads, heads, _HEAD)
        # Sorted by name, the order in which a file returns its columns.
        return dict(sorted({**saved, _CHAIN: chain, **sparse}.items()))

    def _saved_sparse(self, table: _SparseRows, numbers: Array, kind: str) -> dict[str, Array]:
        named = {f"{kind}.{name}": table.get(name, self.slots(numbers)) for name in sorted(table.names())}
        return {kind: numbers, **named} if named else {}

    def _open_tails(self, numbers: Array) -> dict[str, Array]:
        """Return the tails of unfinished episodes, which may still change."""
        if not len(numbers):
            return {}
        slots = self.slots(numbers)
        return self._saved_sparse(self._tails, numbers[self._tails.has(slots) & ~self._columns["ended"][slots]], _TAIL)

    def _cut_heads(self, numbers: Array) -> dict[str, Array]:
        """Return the frame stacks of steps whose predecessors are not saved."""
        if not self._depths or not len(numbers):
            return {}
        cut = numbers[(self._before[self.slots(numbers)] < numbers[0]) & (self.chain(numbers) != numbers)]
        stacks = {name: self._observation(name, self.slots(cut)) for name in sorted(self._depths)}
        return {_HEAD: cut, **{f"{_HEAD}.{name}": column for name, column in stacks.items()}}

    def _restore_rows(self, saved: Columns, first: int) -> int:
        if not saved:
            return 0
        numbers = first + np.arange(len(saved[_CHAIN]))
        slots = self.slots(numbers)
        for name, column in saved.items():
            if name.startswith("ring."):
                continue
            if name not in self._columns:
                self._columns[name] = self._allocate((self._slots, *column.shape[1:]), column.dtype)
            self._columns[name][slots] = column
        self._chain[slots] = saved[_CHAIN]
        self._restore_sparse(self._tails, saved, _TAIL)
        self._restore_sparse(self._heads, saved, _HEAD)
        return len(numbers)

    def _restore_sparse(self, table: _SparseRows, saved: Columns, kind: str) -> None:
        if kind not in saved or not len(saved[kind]):
            return
        columns = {name.removeprefix(f"{kind}."): c for name, c in saved.items() if name.startswith(f"{kind}.")}
        table.put(self.slots(saved[kind]), columns)
        if table is self._heads:
            self._depths = {name: column.shape[1] for name, column in columns.items()}

    def _restore_links(self, numbers: Array) -> None:
        """Link the steps of each chain in the order of their numbers."""
        chain = self.chain(numbers)
        order = np.argsort(chain, kind="stable")
        linked = chain[order[1:]] == chain[order[:-1]]
        before, after = numbers[order[:-1][linked]], numbers[order[1:][linked]]
        self._successor[self.slots(before)] = after
        self._before[self.slots(after)] = before


class _SparseRows:
    """Table of whole observations for the few steps that have a tail (or a head); grows as needed."""

    def __init__(self, slots: int, allocate: Allocate) -> None:
        self._place = np.full(slots, NONE, np.int32)
        self._allocate = allocate
        self._columns: dict[str, Array] = {}
        self._capacity = 0
        self._free: list[int] = []

    def names(self) -> list[str]:
        return list(self._columns)

    def has(self, slots: Array | slice) -> Array:
        return np.asarray(self._place[slots] != NONE)

    def get(self, name: str, slots: Array) -> Array:
        return self._columns[name][self._place[slots]]

    def row(self, name: str, slot: int) -> Array:
        found: Array = self._columns[name][self._place[slot]]
        return found

    def put(self, slots: Array, columns: Columns) -> None:
        for index, slot in enumerate(slots.tolist()):
            self.put_row(slot, {name: column[index] for name, column in columns.items()})

    def put_row(self, slot: int, values: Columns) -> None:
        """Store an observation (values by column name) for a slot that has no observation in the table."""
        if not values:
            return
        if not self._free:
            self._grow(values)
        place = self._place[slot] = self._free.pop()
        for name, value in values.items():
            self._columns[name][place] = value

    def drop(self, slots: slice) -> None:
        places = self._place[slots]
        used = places[places != NONE]
        if used.size:
            self._free += used.tolist()
            places[:] = NONE

    def _grow(self, values: Columns) -> None:
        capacity = max(_MIN_BLOCK, 2 * self._capacity)
        for name, value in values.items():
            larger = self._allocate((capacity, *value.shape), value.dtype)
            if self._capacity:
                larger[: self._capacity] = self._columns[name]
            self._columns[name] = larger
        self._free += range(self._capacity, capacity)
        self._capacity = capacity


def block_size(capacity: int) -> int:
    """Return the number of steps per block; a checkpoint saves steps in blocks."""
    return max(_MIN_BLOCK, capacity // _BLOCKS)


def slots_for(capacity: int) -> int:
    """Return the number of rows to allocate for ``capacity`` steps: whole blocks plus one.

    The additional block ensures that every block with a stored step is complete.
    """
    block = block_size(capacity)
    return block * (-(-capacity // block) + 1)


def ring_bytes(capacity: int, spec: Spec, storage: Storage, *, unstack: bool) -> BufferBytes:
    """Return the size in bytes of a full `Ring`, without tails (one observation per stored episode)."""
    frames = sum(space_bytes(space) // _frames(space, unstack=unstack) for space in spec.observation.values())
    rows = slots_for(capacity) * (frames + space_bytes(spec.action) + _OUTCOME)
    links = slots_for(capacity) * _LINKS
    return BufferBytes(links, rows) if storage == "disk" else BufferBytes(links + rows)


_OUTCOME = 4 + 2 * 1
"""Bytes per step of the reward and the flags terminated and ended."""

_LINKS = 3 * 8 + 2 * 4
"""Bytes per step of chain, successor, predecessor, and the positions of tail and head."""


def _frames(space: Space, *, unstack: bool) -> int:
    return space.shape[0] if unstack and len(space.shape) >= _MIN_FRAME_AXES else 1


def _rows_of(trajectory: Trajectory) -> dict[str, Array]:
    """Return the columns that the ring stores, with one row per step; the final observation is not included."""
    rows = transitions(trajectory).items()
    return {name: column for name, column in rows if name not in _NOT_STORED and not name.startswith("next_")}
