"""Where the columns of a buffer live: in memory, or in files that the system pages in and out."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from rl4sys.errors import RunError
from rl4sys.spec import Array

Storage: TypeAlias = Literal["memory", "disk"]

Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Zeros of a shape and type."""


def allocator(storage: Storage, scratch: Path | None) -> Allocate:
    """How columns are made; on disk, in files of the folder ``scratch``, or of the system's for temporary files."""
    if storage == "memory":
        return np.zeros
    return lambda shape, dtype: _on_disk(shape, dtype, scratch)


def _on_disk(shape: tuple[int, ...], dtype: np.dtype[Any], scratch: Path | None) -> Array:
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    try:
        # A file without a name: it is gone with the process however that ends, and no other life can find it.
        with tempfile.TemporaryFile(dir=scratch) as file:
            # Taken at once, since a disk that is full when a page is written back kills the process.
            os.posix_fallocate(file.fileno(), 0, size)
            pages = mmap.mmap(file.fileno(), size)
    except OSError as problem:
        folder = scratch or tempfile.gettempdir()
        raise RunError(
            f"cannot keep {size:,} bytes of experience in {folder}: {problem.strerror}; "
            "lower buffer.size, make room there, or set buffer.storage: memory"
        ) from problem
    return np.frombuffer(pages, dtype).reshape(shape)
