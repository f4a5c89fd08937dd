"""Conversion between arrays and Column messages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Array
from rl4sys.wire.messages import Column, DType

MAX_AXES = 8
"""Maximum number of axes of an array in a message, in addition to the row axis."""

WIRE_DTYPES = {np.dtype(name.removeprefix("DTYPE_").lower()): name for name in DType.keys()[1:]}
"""Supported dtypes of arrays in messages, with their names in the protocol."""

_DTYPES = {DType.Value(name): dtype.newbyteorder("<") for dtype, name in WIRE_DTYPES.items()}


def encode_column(name: str, array: Array) -> Column:
    dtype = WIRE_DTYPES.get(array.dtype)
    if dtype is None:
        supported = ", ".join(map(str, WIRE_DTYPES))
        raise SpecError(f"column {name!r} has dtype {array.dtype}; supported dtypes: {supported}")
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return Column(name=name, dtype=dtype, shape=array.shape, values=values)


def decode_column(column: Column) -> Array:
    """Return the array of a column as a read-only view. Raises `SpecError` if its shape does not fit its bytes."""
    dtype = _DTYPES.get(column.dtype)
    if dtype is None:
        raise SpecError(f"column {column.name!r:.80} has the unknown dtype {column.dtype}")
    # Check before multiplying: the product of very many axes would take too long.
    if len(column.shape) > MAX_AXES + 1:
        raise SpecError(f"column {column.name!r:.80} has {len(column.shape)} axes; the maximum is {MAX_AXES + 1}")
    shape = tuple(column.shape)
    # Python integers do not overflow, so a huge shape cannot pass this check.
    if math.prod(shape) * dtype.itemsize != len(column.values):
        size = len(column.values)
        raise SpecError(f"column {column.name!r:.80} has {size} bytes, which do not fit its shape {shape} of {dtype}")
    return _view(column, shape, dtype)


def _view(column: Column, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    flat = np.frombuffer(column.values, dtype)
    if dtype == np.bool_ and flat.view(np.uint8).max(initial=0) > 1:
        raise SpecError(f"column {column.name!r:.80} has dtype bool, but contains a byte other than 0 and 1")
    try:
        return flat.reshape(shape)
    except ValueError as problem:
        # The axes of an empty array can have any length; numpy rejects lengths beyond its index type.
        raise SpecError(f"column {column.name!r:.80} has an invalid shape {shape}: {problem}") from problem
