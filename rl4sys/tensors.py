"""Encode named arrays as safetensors bytes, and decode them.

With this module, the client does not need the safetensors library, which reads and writes the same format. The
format has eight bytes with the header length, a JSON header with the dtype, shape and byte range of each name, and the
arrays in little-endian byte order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Array, Columns

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_METADATA = "__metadata__"
_MAX_HEADER = 16 * 1024 * 1024
_ALIGNMENT = 8
_MAX_AXES = 32


def encode(arrays: Columns, metadata: Mapping[str, str]) -> bytes:
    """Return arrays and metadata as safetensors bytes; equal input gives equal bytes."""
    header: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))}
    parts: list[bytes] = []
    offset = 0
    for name, array in sorted(arrays.items()):
        part = np.ascontiguousarray(array, _little_endian(array.dtype)).tobytes()
        header[name] = {
            "dtype": _name_of(name, array.dtype),
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(part)],
        }
        parts.append(part)
        offset += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def decode(blob: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays, as read-only views into ``blob``, and the metadata. Raises `SpecError` for invalid sizes."""
    header, start = _header_of(blob)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict):
        raise SpecError(f"the metadata of a safetensors file must be a JSON object, got {metadata!r:.100}")
    arrays = {name: _view(blob, start, name, entry) for name, entry in header.items()}
    _check_shared_bytes(arrays, len(blob) - start)
    return arrays, {str(name): str(value) for name, value in metadata.items()}


def _check_shared_bytes(arrays: Columns, size: int) -> None:
    """Raise `SpecError` if arrays overlap, because copies of the arrays could need far more RAM than the file."""
    total = sum(array.nbytes for array in arrays.values())
    if total > size:
        raise SpecError(f"the arrays of a safetensors file overlap: they need {total} bytes, the file has {size} bytes")


def _header_of(blob: bytes) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or length > min(len(blob) - 8, _MAX_HEADER):
        raise SpecError(f"not a safetensors file: {len(blob)} bytes cannot contain a header of {length} bytes")
    try:
        header = json.loads(blob[8 : 8 + length])
    except (ValueError, RecursionError) as problem:
        raise SpecError(f"not a safetensors file: its header is not JSON ({problem})") from problem
    if not isinstance(header, dict):
        raise SpecError("not a safetensors file: its header is not a JSON object")
    return header, 8 + length


def _view(blob: bytes, start: int, name: str, entry: Any) -> Array:
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(int(n) for n in entry["shape"])
        first, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise SpecError(f"array {name!r} of a safetensors file has an invalid entry: {entry!r:.200}") from problem
    # Check this first: the product of very many axes would take too long.
    if len(shape) > _MAX_AXES:
        raise SpecError(f"array {name!r} of a safetensors file has {len(shape)} axes; the maximum is {_MAX_AXES}")
    size = math.prod(shape) * dtype.itemsize
    if min((*shape, 0)) < 0 or not 0 <= first <= end <= len(blob) - start or end - first != size:
        raise SpecError(
            f"array {name!r} needs {size} bytes, but has the byte range {first}..{end} of {len(blob) - start} bytes"
        )
    return np.frombuffer(blob, dtype, math.prod(shape), start + first).reshape(shape)


def _name_of(name: str, dtype: np.dtype[Any]) -> str:
    if _little_endian(dtype) not in _NAMES:
        raise SpecError(f"array {name!r} has dtype {dtype}; safetensors supports {sorted(map(str, _NAMES))}")
    return _NAMES[_little_endian(dtype)]


def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")
