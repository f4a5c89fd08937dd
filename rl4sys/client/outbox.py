"""Queue of trajectories waiting to be sent or acknowledged.

The queue has a size limit in RAM and another on disk; beyond both, the oldest trajectories are dropped and counted.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rl4sys.client.recording import EncodedTrajectory, Recording
from rl4sys.client.spool import Spool

_log = logging.getLogger("rl4sys.client")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_EVERYTHING = 2**64
_MAX_ENCODED_PER_CALL = 256
_MIN_INCOMING_BYTES = 4 * 2**20
"""Minimum capacity in bytes of the queue of recordings to encode, even if ``memory_bytes`` is smaller."""


class _Slot(NamedTuple):
    trajectory: EncodedTrajectory
    on_disk: bool

    @property
    def size(self) -> int:
        return len(self.trajectory.content)


class Outbox:
    """FIFO queue of trajectories for the server.

    `put` is thread-safe and never uses the disk; only the link's thread calls the other methods. Older trajectories are
    in RAM, newer ones on disk. Trajectories on disk are read back while the size in RAM is below its limit, and stay on
    disk until they are acknowledged. ``encode`` is called on the link's thread, once per recording.
    """

    def __init__(self, memory_bytes: int, spool: Spool, encode: Callable[[Recording], bytes]) -> None:
        self._limit, self._spool, self._encode = memory_bytes, spool, encode
        self._lock = threading.Lock()
        self._incoming: deque[Recording] = deque()
        self._incoming_bytes = 0
        self._sent: deque[_Slot] = deque()
        self._unsent: deque[_Slot] = deque()
        self._accepted_steps, self._dropped_steps = spool.waiting_steps, 0
        self._warned_unwritable = self._unwritable = self._persisted = False
        self._warned_overflow = self._overflowed = False
        self.memory_bytes = 0
        self.acknowledged_steps = 0

    @property
    def waiting_steps(self) -> int:
        """Number of steps neither acknowledged nor dropped."""
        return self._accepted_steps - self.acknowledged_steps - self.dropped_steps

    @property
    def dropped_steps(self) -> int:
        return self._dropped_steps + self._spool.lost_steps

    @property
    def spool_bytes(self) -> int:
        return self._spool.bytes

    @property
    def unsent_count(self) -> int:
        """Number of trajectories in RAM that were not sent yet."""
        return len(self._unsent)

    @property
    def has_incoming(self) -> bool:
        """True if recordings wait for `encode_incoming`."""
        return bool(self._incoming)

    def put(self, recording: Recording) -> None:
        """Queue a recording. If the link does not keep up, the oldest queued recording is dropped."""
        with self._lock:
            self._accepted_steps += recording.steps
            if self._persisted:
                self._dropped_steps += recording.steps
                return
            self._incoming.append(recording)
            self._incoming_bytes += recording.size
            while self._incoming_bytes > max(self._limit, _MIN_INCOMING_BYTES) and len(self._incoming) > 1:
                oldest = self._incoming.popleft()
                self._incoming_bytes -= oldest.size
                self._dropped_steps += oldest.steps
                self._overflowed = True

    def encode_incoming(self) -> list[Recording]:
        """Encode and store the oldest queued recordings, up to a maximum per call, and return these recordings."""
        taken: list[Recording] = []
        # The maximum keeps a fast host program from blocking the link, which must also send and receive.
        while len(taken) < _MAX_ENCODED_PER_CALL and (recording := self._next_incoming()) is not None:
            taken.append(recording)
            try:
                content = self._encode(recording)
            except Exception:
                # One bad recording must not stop the host or the other recordings.
                _log.exception("a trajectory could not be encoded and is dropped")
                self._count_dropped(recording.steps)
            else:
                self._store(EncodedTrajectory(recording.sequence, recording.steps, content))
        self._warn_if_overflowed()
        return taken

    def next_batch(self, max_bytes: int) -> list[EncodedTrajectory]:
        """Return the next trajectories to send, at most ``max_bytes`` in total but at least one if any is unsent."""
        self._refill_from_disk()
        trajectories: list[EncodedTrajectory] = []
        size = 0
        while self._unsent and (not trajectories or size + self._unsent[0].size <= max_bytes):
            slot = self._unsent.popleft()
            self._sent.append(slot)
            trajectories.append(slot.trajectory)
            size += slot.size
        return trajectories

    def rewind(self) -> None:
        """Mark unacknowledged trajectories as unsent, so that a new connection sends them again."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()

    def acknowledge(self, sequence: int) -> None:
        """Remove the trajectories up to ``sequence``, which the server has stored."""
        while True:
            for slots in (self._sent, self._unsent):
                while slots and slots[0].trajectory.sequence <= sequence:
                    self.acknowledged_steps += self._remove_oldest(slots).trajectory.steps
            self._spool.remove_up_to(sequence)
            self._refill_from_disk()
            # Trajectories just read from disk may be covered by this acknowledgement as well, so check again.
            if not self._unsent or self._unsent[0].trajectory.sequence > sequence:
                return

    def drop_last(self) -> None:
        """Drop the last trajectory of the latest batch, because it cannot be sent."""
        slot = self._sent.pop()
        self.memory_bytes -= slot.size
        self._count_dropped(slot.trajectory.steps)

    def persist(self) -> None:
        """Write the trajectories in RAM to disk for the next client instance and release the spool.

        Recordings that are queued later are dropped.
        """
        with self._lock:
            self._persisted = True
        while self.has_incoming:
            self.encode_incoming()
        self._write_to_disk()
        self._sent.clear()
        self._unsent.clear()
        if self.waiting_steps <= 0:
            self._spool.remove_up_to(_EVERYTHING)
        self._spool.close()

    def _next_incoming(self) -> Recording | None:
        with self._lock:
            if not self._incoming:
                return None
            recording = self._incoming.popleft()
            self._incoming_bytes -= recording.size
            return recording

    def _store(self, trajectory: EncodedTrajectory) -> None:
        """Store a trajectory in RAM, or on disk at the RAM limit. At both limits, drop the oldest ones first."""
        self._refill_from_disk()
        while not self._fits_in_memory(trajectory):
            if self._try_spool(trajectory):
                return
            if self._unwritable and self._spool.waiting_steps > 0:
                # Older trajectories are on a disk that is now unwritable. Drop the new one instead of all of them.
                self._count_dropped(trajectory.steps)
                return
            self._drop_oldest()
        self._add_to_memory(_Slot(trajectory, on_disk=False))

    def _fits_in_memory(self, trajectory: EncodedTrajectory) -> bool:
        """Return True if the trajectory may be stored in RAM: within the size limit, or as the only trajectory in RAM.

        Returns False while older trajectories exist only on disk, to keep the order.
        """
        if self._spool.waiting_steps > 0:
            return False
        return self.memory_bytes == 0 or self.memory_bytes + len(trajectory.content) <= self._limit

    def _try_spool(self, trajectory: EncodedTrajectory) -> bool:
        if self._spool.size_of(trajectory) > self._spool.free_bytes:
            return False
        try:
            self._spool.append(trajectory)
        except OSError as problem:
            self._unwritable = problem.errno not in _FULL
            if not self._warned_unwritable:
                self._warned_unwritable = True
                _log.error("trajectories cannot be written to disk, so the oldest are dropped: %s", problem)
            return False
        self._unwritable = False
        return True

    def _write_to_disk(self) -> None:
        kept: list[_Slot] = []
        free_bytes = self._spool.free_bytes
        for slot in reversed([*self._sent, *self._unsent]):
            free_bytes -= 0 if slot.on_disk else self._spool.size_of(slot.trajectory)
            if slot.on_disk or free_bytes >= 0:
                kept.append(slot)
            else:
                self._count_dropped(slot.trajectory.steps)
        # Segments are read in the order of their first sequence number. These trajectories precede the last segment.
        self._spool.close_segment()
        for slot in reversed(kept):
            if slot.on_disk:
                self._spool.close_segment()
            elif not self._try_spool(slot.trajectory):
                self._count_dropped(slot.trajectory.steps)

    def _warn_if_overflowed(self) -> None:
        """Log the first overflow. Called by the link, because logging could block the host program."""
        if self._overflowed and not (self._warned_overflow or self._warned_unwritable):
            self._warned_overflow = True
            _log.warning(
                "dropping the oldest steps: the outbox and its spool are full, because the server is unreachable or "
                "too slow. Further dropped steps are counted but not logged"
            )

    def _drop_oldest(self) -> None:
        self._overflowed = True
        slot = self._remove_oldest(self._sent or self._unsent)
        self._count_dropped(slot.trajectory.steps)
        self._spool.remove_up_to(slot.trajectory.sequence)
        self._refill_from_disk()

    def _remove_oldest(self, slots: deque[_Slot]) -> _Slot:
        slot = slots.popleft()
        self.memory_bytes -= slot.size
        return slot

    def _add_to_memory(self, slot: _Slot) -> None:
        self._unsent.append(slot)
        self.memory_bytes += slot.size

    def _refill_from_disk(self) -> None:
        """Read trajectories from disk until the size in RAM reaches the limit; read at least one if RAM is empty."""
        while self.memory_bytes == 0 or self.memory_bytes < self._limit:
            trajectory = self._spool.read_next()
            if trajectory is None:
                return
            self._add_to_memory(_Slot(trajectory, on_disk=True))

    def _count_dropped(self, steps: int) -> None:
        with self._lock:
            self._dropped_steps += steps
