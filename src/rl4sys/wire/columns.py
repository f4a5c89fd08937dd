"""Arrays ⇄ the Column message."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Array
from rl4sys.wire.messages import Column, DType

MOST_AXES = 8
"""Of an array on the wire, besides that of its rows."""

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
    # Before anything is multiplied: the product of very many axes would take for ever.
    if len(column.shape) > MOST_AXES + 1:
        raise SpecError(f"column {column.name!r:.80} claims {len(column.shape)} axes; it can have {MOST_AXES + 1}")
    shape = tuple(column.shape)
    # Python's integers do not overflow, so no shape can pretend to fit.
    if math.prod(shape) * dtype.itemsize != len(column.values):
        raise SpecError(f"column {column.name!r:.80} claims shape {shape} and has {len(column.values)} bytes")
    return _view(column, shape, dtype)


def _view(column: Column, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    flat = np.frombuffer(column.values, dtype)
    if dtype == np.bool_ and flat.view(np.uint8).max(initial=0) > 1:
        raise SpecError(f"column {column.name!r:.80} is of bools, and has a byte that is neither 0 nor 1")
    try:
        return flat.reshape(shape)
    except ValueError as problem:
        # An array of no bytes can claim axes of any length, except those that numpy cannot count.
        raise SpecError(f"column {column.name!r:.80} claims shape {shape}: {problem}") from problem
