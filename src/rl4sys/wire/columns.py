"""Arrays ⇄ the Column message."""

from __future__ import annotations

import math

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Array
from rl4sys.wire.messages import Column, DType

_MOST_AXES = 8

CARRIED = {np.dtype(name.removeprefix("DTYPE_").lower()): name for name in DType.keys()[1:]}
"""The types of arrays on the wire."""

_DTYPES = {DType.Value(name): dtype.newbyteorder("<") for dtype, name in CARRIED.items()}


def encode_column(name: str, array: Array) -> Column:
    dtype = CARRIED.get(array.dtype)
    if dtype is None:
        raise SpecError(f"column {name} is of type {array.dtype}; the wire carries {', '.join(map(str, CARRIED))}")
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return Column(name=name, dtype=dtype, shape=array.shape, values=values)


def decode_column(column: Column) -> Array:
    """A read-only view of the message's bytes; what it claims is checked against their number first."""
    dtype = _DTYPES.get(column.dtype)
    if dtype is None:
        raise SpecError(f"column {column.name!r:.80} is of type {column.dtype}, which the wire does not know")
    shape = tuple(column.shape)
    # Python's integers do not overflow, so no shape can pretend to fit.
    if math.prod(shape) * dtype.itemsize != len(column.values) or len(shape) > _MOST_AXES:
        raise SpecError(f"column {column.name!r:.80} claims shape {shape} and has {len(column.values)} bytes")
    return np.frombuffer(column.values, dtype).reshape(shape)
