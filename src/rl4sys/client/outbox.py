"""What waits to be sent or acknowledged: bounded in memory, then on disk, then the oldest is given up and counted."""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rl4sys.client.spool import Parcel, Spool

_log = logging.getLogger("rl4sys.client")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_EVERYTHING = 2**64
_MOST_SETTLED_AT_ONCE = 256
_LEAST_INCOMING_BYTES = 4 * 2**20
"""What may be on its way to the link's thread, however little is to stay in memory."""


@dataclass(frozen=True)
class Fresh:
    """A trajectory as the decision path hands it over."""

    sequence: int
    steps: int
    size: int
    """About how many bytes it takes."""
    encode: Callable[[], bytes]
    """Called in the link's thread."""
    urgent: bool = False
    """The learner's next update waits for it."""


@dataclass(frozen=True)
class _Held:
    parcel: Parcel
    on_disk: bool

    @property
    def size(self) -> int:
        return len(self.parcel.content)


class Outbox:
    """First in, first out. `put` may be called from any thread and touches memory only; all else is the link's.

    Older trajectories are in memory, newer ones on disk: what is on disk comes back as memory empties, and stays on
    disk until it is acknowledged.
    """

    def __init__(self, memory_bytes: int, spool: Spool) -> None:
        self._limit, self._spool = memory_bytes, spool
        self._lock = threading.Lock()
        self._incoming: deque[Fresh] = deque()
        self._incoming_bytes = 0
        self._sent: deque[_Held] = deque()
        self._unsent: deque[_Held] = deque()
        self._accepted_steps, self._dropped_steps = spool.waiting_steps, 0
        self._warned = self._unwritable = self._parked = False
        self.memory_bytes = 0
        self.acknowledged_steps = 0

    @property
    def waiting_steps(self) -> int:
        """Steps that are neither acknowledged nor given up."""
        return self._accepted_steps - self.acknowledged_steps - self.dropped_steps

    @property
    def dropped_steps(self) -> int:
        return self._dropped_steps + self._spool.lost_steps

    @property
    def spool_bytes(self) -> int:
        return self._spool.bytes

    @property
    def unsent(self) -> int:
        """Trajectories to be sent that are in memory."""
        return len(self._unsent)

    @property
    def unsettled(self) -> bool:
        """Whether there is more to settle."""
        return bool(self._incoming)

    def put(self, fresh: Fresh) -> None:
        """Take a trajectory in; where the link does not keep up, the oldest that it has not seen is given up."""
        with self._lock:
            self._accepted_steps += fresh.steps
            if self._parked:
                self._dropped_steps += fresh.steps
                return
            self._incoming.append(fresh)
            self._incoming_bytes += fresh.size
            while self._incoming_bytes > max(self._limit, _LEAST_INCOMING_BYTES) and len(self._incoming) > 1:
                oldest = self._incoming.popleft()
                self._incoming_bytes -= oldest.size
                self._dropped_steps += oldest.steps

    def settle(self) -> list[Fresh]:
        """Encode and store some of what came in, and return it."""
        settled: list[Fresh] = []
        # Not all at once: a host that is faster than this must not keep the link from sending and hearing.
        while len(settled) < _MOST_SETTLED_AT_ONCE and (fresh := self._next_incoming()) is not None:
            settled.append(fresh)
            try:
                content = fresh.encode()
            except Exception:
                # An edge: whatever is wrong with one trajectory, the host and the others go on.
                _log.exception("a trajectory could not be encoded and is given up")
                self._count_dropped(fresh.steps)
            else:
                self._store(Parcel(fresh.sequence, fresh.steps, content))
        return settled

    def batch(self, most_bytes: int) -> list[Parcel]:
        """The next to send, at least one if any waits, together at most so many bytes."""
        self._refill()
        parcels: list[Parcel] = []
        size = 0
        while self._unsent and (not parcels or size + self._unsent[0].size <= most_bytes):
            held = self._unsent.popleft()
            self._sent.append(held)
            parcels.append(held.parcel)
            size += held.size
        return parcels

    def rewind(self) -> None:
        """What was sent on a connection that is gone is to be sent again."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()

    def acknowledge(self, sequence: int) -> None:
        """The server has everything up to ``sequence``."""
        while True:
            for held in (self._sent, self._unsent):
                while held and held[0].parcel.sequence <= sequence:
                    self.acknowledged_steps += self._remove_oldest(held).parcel.steps
            self._spool.forget(sequence)
            self._refill()
            # What was read from disk just now may be among what the server has, and would never be acknowledged again.
            if not self._unsent or self._unsent[0].parcel.sequence > sequence:
                return

    def give_up(self, parcel: Parcel) -> None:
        """Drop what `batch` gave last, because it cannot be sent at all."""
        held = self._sent.pop()
        assert held.parcel is parcel  # as promised
        self.memory_bytes -= held.size
        self._count_dropped(parcel.steps)

    def park(self) -> None:
        """Put what is in memory on disk, for the next process of this client to send, and let go of the disk."""
        with self._lock:
            self._parked = True
        while self.unsettled:
            self.settle()
        kept: list[_Held] = []
        room = self._spool.room
        for held in reversed([*self._sent, *self._unsent]):
            room -= 0 if held.on_disk else self._spool.size_of(held.parcel)
            if held.on_disk or room >= 0:
                kept.append(held)
            else:
                self._count_dropped(held.parcel.steps)
        # Segments are read in the order of their first sequence, and these are older than what is in the last one.
        self._spool.cut()
        for held in reversed(kept):
            if held.on_disk:
                self._spool.cut()
            elif not self._spooled(held.parcel):
                self._count_dropped(held.parcel.steps)
        self._sent.clear()
        self._unsent.clear()
        if self.waiting_steps <= 0:
            self._spool.forget(_EVERYTHING)
        self._spool.close()

    def _next_incoming(self) -> Fresh | None:
        with self._lock:
            if not self._incoming:
                return None
            fresh = self._incoming.popleft()
            self._incoming_bytes -= fresh.size
            return fresh

    def _store(self, parcel: Parcel) -> None:
        """In memory, else on disk; else give up the oldest until one of them takes it."""
        self._refill()
        while not self._fits_memory(parcel):
            if self._spooled(parcel):
                return
            if self._unwritable and self._spool.waiting_steps > 0:
                # The disk takes nothing more, yet holds older ones: to make room here, all those would have to go.
                self._count_dropped(parcel.steps)
                return
            self._drop_oldest()
        self._hold(_Held(parcel, on_disk=False))

    def _fits_memory(self, parcel: Parcel) -> bool:
        """Whether it may stay in memory: not while older ones are on disk alone."""
        if self._spool.waiting_steps > 0:
            return False
        return self.memory_bytes == 0 or self.memory_bytes + len(parcel.content) <= self._limit

    def _spooled(self, parcel: Parcel) -> bool:
        if self._spool.size_of(parcel) > self._spool.room:
            return False
        try:
            self._spool.append(parcel)
        except OSError as problem:
            self._unwritable = problem.errno not in _FULL
            if not self._warned:
                self._warned = True
                _log.error("trajectories cannot be kept on disk, so the oldest are given up: %s", problem)
            return False
        self._unwritable = False
        return True

    def _drop_oldest(self) -> None:
        held = self._remove_oldest(self._sent or self._unsent)
        self._count_dropped(held.parcel.steps)
        self._spool.forget(held.parcel.sequence)
        self._refill()

    def _remove_oldest(self, queue: deque[_Held]) -> _Held:
        held = queue.popleft()
        self.memory_bytes -= held.size
        return held

    def _hold(self, held: _Held) -> None:
        self._unsent.append(held)
        self.memory_bytes += held.size

    def _refill(self) -> None:
        """Bring back from disk what fits into memory; at least one, which is how it gets sent."""
        while self.memory_bytes == 0 or self.memory_bytes < self._limit:
            parcel = self._spool.next()
            if parcel is None:
                return
            self._hold(_Held(parcel, on_disk=True))

    def _count_dropped(self, steps: int) -> None:
        with self._lock:
            self._dropped_steps += steps
