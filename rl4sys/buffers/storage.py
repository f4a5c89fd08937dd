"""Storage of buffer columns: in RAM, or in memory-mapped files."""

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
"""Function that returns a zeroed array of the given shape and dtype."""


def allocator(storage: Storage, scratch: Path | None) -> Allocate:
    """Return a function that allocates columns in RAM, or in files in ``scratch`` (None: the temporary directory)."""
    if storage == "memory":
        return np.zeros
    return lambda shape, dtype: _on_disk(shape, dtype, scratch)


def _on_disk(shape: tuple[int, ...], dtype: np.dtype[Any], scratch: Path | None) -> Array:
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    try:
        # The system deletes an unnamed file when the process ends, even after a crash.
        with tempfile.TemporaryFile(dir=scratch) as file:
            # Allocate now: a full disk during write-back of a page would kill the process.
            os.posix_fallocate(file.fileno(), 0, size)
            pages = mmap.mmap(file.fileno(), size)
    except OSError as problem:
        folder = scratch or tempfile.gettempdir()
        raise RunError(
            f"cannot allocate {size:,} bytes for the buffer in {folder}: {problem.strerror}; "
            "lower buffer.size, free disk space, or set buffer.storage: memory"
        ) from problem
    return np.frombuffer(pages, dtype).reshape(shape)
