"""Bytes → messages, looked at before they are unpacked: two bytes on the wire can become a hundred in memory."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from rl4sys.errors import SpecError

_SMALL_BYTES = 2**16
_MOST_PARTS = 2**15
"""Fields and elements of lists, of a message and all within it; each may take about 100 bytes of memory."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}

_Kind = TypeVar("_Kind", bound=Message)


def unpack(kind: type[_Kind], content: bytes, name: str = "") -> _Kind:
    """The message in ``content``; `SpecError` if it is none, or of more parts than any message has need of."""
    name = name or kind.DESCRIPTOR.name
    if len(content) > _SMALL_BYTES and _parts(content, 0, len(content), kind.DESCRIPTOR, _MOST_PARTS) > _MOST_PARTS:
        raise SpecError(f"not a {name}: {len(content)} bytes, in more than {_MOST_PARTS} parts")
    try:
        return kind.FromString(content)
    except DecodeError as problem:
        raise SpecError(f"not a {name}: {len(content)} bytes") from problem


def _parts(content: bytes, start: int, end: int, kind: Any, most: int) -> int:
    """How many parts the message at ``start`` has, or some number above ``most``; up to where it cannot be read.

    ``kind`` is protobuf's description of it, of one of several classes.
    """
    position, parts = start, 0
    while position < end and parts <= most:
        tag, position = _varint(content, position)
        parts += 1
        wire_type = tag & 7
        if wire_type == _LENGTH:
            length, position = _varint(content, position)
            parts += _parts_within(content, position, min(end, position + length), kind.fields_by_number.get(tag >> 3))
            position += length
        elif wire_type == _VARINT:
            _, position = _varint(content, position)
        else:
            position += _WIDTHS.get(wire_type, 0)
    return parts


def _parts_within(content: bytes, start: int, end: int, field: Any) -> int:
    """Those of a field: of a message what it holds, of packed numbers at most one per byte, of bytes none."""
    if field is None:
        return 0
    if field.message_type is not None:
        return _parts(content, start, end, field.message_type, _MOST_PARTS)
    return end - start if field.is_packed else 0


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends; the end of ``content`` where it does not."""
    number = shift = 0
    for at in range(position, min(position + 10, len(content))):
        byte = content[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    return number, len(content)
