"""Trajectories on disk while the server is away: a queue of segment files, owned by one process.

A segment is a row of frames, each a header (sequence, steps, length, checksum) and the bytes themselves. Segments are
named by their first sequence and removed when all they hold is acknowledged. A process holds a lock on its directory,
so that what a dead one left behind can be told from what a living one still uses.
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
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct("<QIII")
_LARGEST_SEGMENT = 4 * 2**20
_SEGMENTS = 8
_LOCK, _HELLO, _SUFFIX = "lock", "hello", ".segment"


class Parcel(NamedTuple):
    """An encoded trajectory."""

    sequence: int
    steps: int
    content: bytes


@dataclass
class _Segment:
    path: Path
    size: int = 0
    steps: int = 0
    """Not read back yet."""
    last_sequence: int = 0


class Spool:
    """First in, first out; for one thread. Only `append` raises OSError, and then all is as it was."""

    def __init__(self, directory: Path, max_bytes: int, hello: bytes) -> None:
        self._directory, self._max_bytes, self._hello = directory, max_bytes, hello
        self._segments: deque[_Segment] = deque()
        self._reading, self._position, self._last_read = 0, 0, 0
        self._writing: FileIO | None = None
        self._lock: BinaryIO | None = None
        self.bytes = 0
        self.waiting_steps = 0
        self.lost_steps = 0
        """Steps whose bytes came back damaged."""

    @classmethod
    def of_the_dead(cls, directory: Path) -> Spool | None:
        """What a process left there that is gone, ready to be read; None if it lives or left nothing."""
        spool = cls(directory, 0, b"")
        if not _is_ours(directory) or not (directory / _HELLO).is_file() or not spool._acquire():
            return None
        spool._hello = (directory / _HELLO).read_bytes()
        paths = sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
        spool._segments.extend(_scan(path) for path in paths)
        spool.bytes = sum(segment.size for segment in spool._segments)
        spool.waiting_steps = sum(segment.steps for segment in spool._segments)
        return spool

    @property
    def hello(self) -> bytes:
        """How the process that filled this spool introduced itself."""
        return self._hello

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def room(self) -> int:
        """Bytes that may still be written."""
        return self._max_bytes - self.bytes

    @staticmethod
    def size_of(parcel: Parcel) -> int:
        """Bytes it takes here."""
        return _HEADER.size + len(parcel.content)

    def append(self, parcel: Parcel) -> None:
        """Write behind the others, if there is room."""
        frame = _header(parcel) + parcel.content
        segment, file = self._segment_for(parcel.sequence)
        try:
            written = file.write(frame)
        except OSError:
            self._abandon(segment)
            raise
        if written < len(frame):
            self._abandon(segment)
            raise OSError(errno.ENOSPC, f"{self._directory} takes no more")
        segment.size += len(frame)
        segment.steps += parcel.steps
        segment.last_sequence = parcel.sequence
        self.bytes += len(frame)
        self.waiting_steps += parcel.steps

    def cut(self) -> None:
        """Begin another segment with the next parcel."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def next(self) -> Parcel | None:
        """The oldest not read yet; it stays on disk until it is forgotten."""
        while self.waiting_steps > 0:
            segment = self._segments[self._reading]
            parcel = _read(segment, self._position) if segment.steps > 0 else None
            if parcel is not None:
                self._position += self.size_of(parcel)
                self._last_read = parcel.sequence
                self._count_read(segment, parcel.steps)
                return parcel
            self._give_up(segment)
            self._reading, self._position = self._reading + 1, 0
            if self._reading == len(self._segments):
                # What comes next must not go where nothing is read any more.
                self.cut()
        return None

    def forget(self, sequence: int) -> None:
        """Remove the segments that were read and end with ``sequence`` or before."""
        while self._segments and self._segments[0].steps == 0 and self._segments[0].last_sequence <= sequence:
            segment = self._segments.popleft()
            self.bytes -= segment.size
            if not self._segments:
                self.cut()
            if self._reading > 0:
                self._reading -= 1
            else:
                self._position = 0
            self._unlink(segment.path)

    def close(self) -> None:
        """Let go of the directory; if nothing is left in it, remove it."""
        self.cut()
        if self._lock is None:
            return
        if not self._segments:
            for name in (_HELLO, _LOCK):
                self._unlink(self._directory / name)
            with suppress(OSError):
                self._directory.rmdir()
        self._release()

    def set_aside(self) -> Path:
        """Rename the directory so that nobody tries to send it again."""
        aside = self._directory.with_suffix(".refused")
        with suppress(OSError):
            self._directory.rename(aside)
        self._release()
        return aside

    def _abandon(self, segment: _Segment) -> None:
        """Write nothing more to a segment: behind what was written whole may be part of a frame."""
        self.cut()
        if segment.size == 0:
            self._segments.pop()
            self._unlink(segment.path)

    @staticmethod
    def _unlink(path: Path) -> None:
        with suppress(OSError):
            path.unlink()

    def _give_up(self, segment: _Segment) -> None:
        """Read no further in it: this is its end, or damaged."""
        self.lost_steps += segment.steps
        if segment.steps > 0:
            segment.last_sequence = self._last_read
        self._count_read(segment, segment.steps)

    def _count_read(self, segment: _Segment, steps: int) -> None:
        segment.steps -= steps
        self.waiting_steps -= steps

    def _segment_for(self, sequence: int) -> tuple[_Segment, FileIO]:
        largest = min(_LARGEST_SEGMENT, max(1, self._max_bytes // _SEGMENTS))
        if self._writing is not None and self._segments[-1].size >= largest:
            self.cut()
        if self._writing is None:
            self._open_directory()
            path = self._directory / f"{sequence:020d}{_SUFFIX}"
            # Unbuffered, so that what a full disk refused does not come back with the next write.
            self._writing = path.open("wb", buffering=0)
            self._segments.append(_Segment(path))
        return self._segments[-1], self._writing

    def _open_directory(self) -> None:
        if self._lock is not None:
            return
        _make_private(self._directory)
        if not self._acquire():
            raise OSError(f"{self._directory} is in use")
        try:
            (self._directory / _HELLO).write_bytes(self._hello)
        except OSError:
            # Held, it would pass for a directory that is ready.
            self._release()
            raise

    def _release(self) -> None:
        if self._lock is not None:
            # Let go of, and not only closed: a forked child has it open as well.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None

    def _acquire(self) -> bool:
        lock = (self._directory / _LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lock = lock
        return True


def dead_spools(home: Path) -> Iterator[Spool]:
    """What dead processes left in the directory of a client, oldest first."""
    try:
        candidates = sorted((path for path in home.iterdir() if not path.suffix), key=lambda path: path.stat().st_mtime)
    except OSError:
        return
    for directory in candidates:
        try:
            spool = Spool.of_the_dead(directory)
        except OSError:
            continue
        if spool is not None:
            yield spool


def _make_private(directory: Path) -> None:
    """Make it for ourselves; what stands where anybody can write must be ours already."""
    for path in [*reversed(directory.parents), directory]:
        if not path.exists():
            path.mkdir(mode=0o700)
        elif _was_planted(path):
            raise OSError(errno.EPERM, f"{path} belongs to somebody else")


def _is_ours(directory: Path) -> bool:
    """Whether nobody else can have put it, or a directory above it, where it is: what is in it is sent in our name."""
    return not any(_was_planted(path) for path in (directory, *directory.absolute().parents))


def _was_planted(path: Path) -> bool:
    return bool(path.parent.stat().st_mode & stat.S_IWOTH) and path.lstat().st_uid != os.getuid()


def _header(parcel: Parcel) -> bytes:
    checksum = zlib.crc32(parcel.content, parcel.sequence & 0xFFFFFFFF)
    return _HEADER.pack(parcel.sequence, parcel.steps, len(parcel.content), checksum)


def _read(segment: _Segment, position: int) -> Parcel | None:
    """The frame there; None if it is damaged."""
    try:
        with segment.path.open("rb") as file:
            file.seek(position)
            sequence, steps, length, checksum = _HEADER.unpack(file.read(_HEADER.size))
            parcel = Parcel(sequence, steps, file.read(min(length, segment.size)))
    except (OSError, struct.error):
        return None
    whole = len(parcel.content) == length and steps <= segment.steps
    return parcel if whole and zlib.crc32(parcel.content, sequence & 0xFFFFFFFF) == checksum else None


def _scan(path: Path) -> _Segment:
    """What a segment holds by its headers, as far as they go."""
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
