"""Writing files so that a crash or a full disk leaves the old content or the new, never half."""

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
    """Put new content in place of the old in one step.

    Where it is not ``synced`` nobody waits for the disk: a crash of the process is as harmless, one of the machine may
    leave the old content, the new, or nothing.
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
    """The same file under another name, or, where the file system has no such thing, a copy."""
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
    """Wait until what was created, renamed or removed in a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
