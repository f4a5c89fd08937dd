"""Preallocated columns."""

from __future__ import annotations

import numpy as np

from rl4sys.spec import Array


def like(column: Array, rows: int) -> Array:
    """Zeros for ``rows`` rows of the same kind as ``column``; the memory is only taken as it is filled."""
    return np.zeros((rows, *column.shape[1:]), column.dtype)


def grow_to(column: Array, rows: int) -> Array:
    """The column itself if it has room for ``rows``, else a copy with twice the room."""
    if rows <= len(column):
        return column
    larger = like(column, max(rows, 2 * len(column)))
    larger[: len(column)] = column
    return larger
