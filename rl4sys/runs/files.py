"""Atomic and durable file writes. A crash or a full disk leaves the old or the new content, never a mixture."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Replace the content of a file atomically.

    Without `synced`, return before the content is on disk. A crash of the process is still harmless, but a crash of the
    machine may leave the old content, the new content, or an empty file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if synced:
            write_synced(temporary, content)
        else:
            temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the file system does not support links."""
    with suppress(OSError):
        target.hardlink_to(source)
        return
    shutil.copyfile(source, target)
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until created, renamed and deleted entries of a directory are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_on_disk(path: Path) -> int:
    """Return the bytes allocated for all files in a directory. Hard links to one file count once."""
    sizes: dict[tuple[int, int], int] = {}
    for file in path.rglob("*"):
        status = file.lstat()
        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())
