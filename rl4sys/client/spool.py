"""Spool: queue of trajectories on disk, in segment files owned by one process, while the server is unreachable.

A segment is a sequence of frames, each with a header (sequence number, steps, length, checksum) and content. A segment
is named by its first sequence number and removed when all its trajectories are acknowledged. The owner holds a file
lock on the directory, which distinguishes spools in use from those of terminated processes. The C++ client uses the
same format, so either client can send the spool of the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from rl4sys.client.recording import EncodedTrajectory

_HEADER = struct.Struct("<QIII")
_MAX_SEGMENT_BYTES = 4 * 2**20
_SEGMENTS = 8
_LOCK, _HELLO, _SUFFIX = "lock", "hello", ".segment"


@dataclass
class _Segment:
    path: Path
    size: int = 0
    steps: int = 0
    """Number of unread steps."""
    last_sequence: int = 0


class Spool:
    """FIFO queue of trajectories on disk, not thread-safe. Only `append` raises OSError; it then changes nothing.

    No files are created before the first trajectory is appended.
    """

    def __init__(self, directory: Path, max_bytes: int, hello: bytes) -> None:
        self._directory, self._max_bytes, self._hello = directory, max_bytes, hello
        self._segments: deque[_Segment] = deque()
        self._reading, self._position, self._last_read = 0, 0, 0
        self._writing: FileIO | None = None
        self._lock: BinaryIO | None = None
        self.bytes = 0
        self.waiting_steps = 0
        self.lost_steps = 0
        """Number of steps lost to damaged files."""

    @classmethod
    def open_abandoned(cls, directory: Path) -> Spool | None:
        """Open the spool of a terminated process for reading.

        Returns None if the spool is in use, may belong to another user, or has no Hello message.
        """
        spool = cls(directory, 0, b"")
        if not _is_owned(directory) or not (directory / _HELLO).is_file() or not spool._acquire_lock():
            return None
        spool._hello = (directory / _HELLO).read_bytes()
        paths = sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
        spool._segments.extend(_scan(path) for path in paths)
        spool.bytes = sum(segment.size for segment in spool._segments)
        spool.waiting_steps = sum(segment.steps for segment in spool._segments)
        return spool

    @property
    def hello(self) -> bytes:
        """Serialized Hello message of the process that wrote this spool."""
        return self._hello

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def free_bytes(self) -> int:
        """Number of bytes that can be written before the size limit is reached."""
        return self._max_bytes - self.bytes

    @staticmethod
    def size_of(trajectory: EncodedTrajectory) -> int:
        """Return the size in bytes of a trajectory on disk."""
        return _HEADER.size + len(trajectory.content)

    def append(self, trajectory: EncodedTrajectory) -> None:
        """Append a trajectory. The caller must check `free_bytes` first."""
        frame = _header(trajectory) + trajectory.content
        segment, file = self._segment_for(trajectory.sequence)
        try:
            written = file.write(frame)
        except OSError:
            self._close_damaged_segment(segment)
            raise
        if written < len(frame):
            self._close_damaged_segment(segment)
            raise OSError(errno.ENOSPC, f"no space left on the disk of the spool {self._directory}")
        segment.size += len(frame)
        segment.steps += trajectory.steps
        segment.last_sequence = trajectory.sequence
        self.bytes += len(frame)
        self.waiting_steps += trajectory.steps

    def close_segment(self) -> None:
        """Close the current segment, so that the next trajectory starts a new one."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def read_next(self) -> EncodedTrajectory | None:
        """Read the oldest unread trajectory, or return None. It stays on disk until `remove_up_to` deletes it."""
        while self.waiting_steps > 0:
            segment = self._segments[self._reading]
            trajectory = _read(segment, self._position) if segment.steps > 0 else None
            if trajectory is not None:
                self._position += self.size_of(trajectory)
                self._last_read = trajectory.sequence
                self._count_read(segment, trajectory.steps)
                return trajectory
            self._skip_rest_of(segment)
            self._reading, self._position = self._reading + 1, 0
            if self._reading == len(self._segments):
                # Reading has passed this segment, so the next trajectory needs a new segment.
                self.close_segment()
        return None

    def remove_up_to(self, sequence: int) -> None:
        """Delete the segments that were read and contain no sequence number above ``sequence``."""
        while self._segments and self._segments[0].steps == 0 and self._segments[0].last_sequence <= sequence:
            segment = self._segments.popleft()
            self.bytes -= segment.size
            if not self._segments:
                self.close_segment()
            if self._reading > 0:
                self._reading -= 1
            else:
                self._position = 0
            self._unlink(segment.path)

    def close(self) -> None:
        """Release the lock, after deleting the directory if no segment is left."""
        self.close_segment()
        if self._lock is None:
            return
        if not self._segments:
            for name in (_HELLO, _LOCK):
                self._unlink(self._directory / name)
            with suppress(OSError):
                self._directory.rmdir()
        self._release_lock()

    def mark_refused(self) -> Path:
        """Rename the directory, so that no client sends the spool again, and release the lock. Returns the new path."""
        refused = self._directory.with_suffix(".refused")
        with suppress(OSError):
            self._directory.rename(refused)
        self._release_lock()
        return refused

    def _close_damaged_segment(self, segment: _Segment) -> None:
        """Close a segment that may end with an incomplete frame; the next trajectory starts a new one."""
        self.close_segment()
        if segment.size == 0:
            self._segments.pop()
            self._unlink(segment.path)

    @staticmethod
    def _unlink(path: Path) -> None:
        with suppress(OSError):
            path.unlink()

    def _skip_rest_of(self, segment: _Segment) -> None:
        """Stop reading a segment, at its end or at a damaged frame, and count unread steps as lost."""
        self.lost_steps += segment.steps
        if segment.steps > 0:
            segment.last_sequence = self._last_read
        self._count_read(segment, segment.steps)

    def _count_read(self, segment: _Segment, steps: int) -> None:
        segment.steps -= steps
        self.waiting_steps -= steps

    def _segment_for(self, sequence: int) -> tuple[_Segment, FileIO]:
        max_bytes = min(_MAX_SEGMENT_BYTES, max(1, self._max_bytes // _SEGMENTS))
        if self._writing is not None and self._segments[-1].size >= max_bytes:
            self.close_segment()
        if self._writing is None:
            self._open_directory()
            path = self._directory / f"{sequence:020d}{_SUFFIX}"
            # Unbuffered, so that bytes rejected by a full disk are not written again with the next frame.
            self._writing = path.open("wb", buffering=0)
            self._segments.append(_Segment(path))
        return self._segments[-1], self._writing

    def _open_directory(self) -> None:
        if self._lock is not None:
            return
        _make_private(self._directory)
        if not self._acquire_lock():
            raise OSError(f"the spool {self._directory} is in use by another process")
        try:
            (self._directory / _HELLO).write_bytes(self._hello)
        except OSError:
            # A held lock marks the directory as ready; release it so that the next attempt writes the file.
            self._release_lock()
            raise

    def _release_lock(self) -> None:
        if self._lock is not None:
            # Unlock explicitly: a forked child may hold the file open as well.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None

    def _acquire_lock(self) -> bool:
        lock = (self._directory / _LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lock = lock
        return True


def abandoned_spools(home: Path) -> Iterator[Spool]:
    """Yield the spools of terminated processes in the directory of a client, oldest first."""
    try:
        candidates = sorted((path for path in home.iterdir() if not path.suffix), key=lambda path: path.stat().st_mtime)
    except OSError:
        return
    for directory in candidates:
        try:
            spool = Spool.open_abandoned(directory)
        except OSError:
            continue
        if spool is not None:
            yield spool


def _make_private(directory: Path) -> None:
    """Create the directory and its parents with mode 700. Raises OSError if another user may own an existing one."""
    for path in [*reversed(directory.parents), directory]:
        if not path.exists():
            path.mkdir(mode=0o700)
        elif _is_foreign(path):
            raise OSError(errno.EPERM, f"{path} belongs to another user")


def _is_owned(directory: Path) -> bool:
    """Return True if no other user can have created the directory or one of its parents.

    This check is needed because the content of a spool is sent in the name of this user.
    """
    return not any(_is_foreign(path) for path in (directory, *directory.absolute().parents))


def _is_foreign(path: Path) -> bool:
    return bool(path.parent.stat().st_mode & stat.S_IWOTH) and path.lstat().st_uid != os.getuid()


def _header(trajectory: EncodedTrajectory) -> bytes:
    checksum = zlib.crc32(trajectory.content, trajectory.sequence & 0xFFFFFFFF)
    return _HEADER.pack(trajectory.sequence, trajectory.steps, len(trajectory.content), checksum)


def _read(segment: _Segment, position: int) -> EncodedTrajectory | None:
    """Read the trajectory at ``position``. Returns None if its frame is damaged."""
    try:
        with segment.path.open("rb") as file:
            file.seek(position)
            sequence, steps, length, checksum = _HEADER.unpack(file.read(_HEADER.size))
            content = file.read(min(length, segment.size))
    except (OSError, struct.error):
        return None
    whole = len(content) == length and steps <= segment.steps
    intact = whole and zlib.crc32(content, sequence & 0xFFFFFFFF) == checksum
    return EncodedTrajectory(sequence, steps, content) if intact else None


def _scan(path: Path) -> _Segment:
    """Create the segment of an existing file; count its steps up to the first incomplete frame."""
    segment = _Segment(path, path.stat().st_size)
    position = 0
    with path.open("rb") as file:
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            sequence, steps, length, _ = _HEADER.unpack(header)
            position += _HEADER.size + length
            if position > segment.size:
                break
            segment.steps += steps
            segment.last_sequence = sequence
            file.seek(position)
    return segment
