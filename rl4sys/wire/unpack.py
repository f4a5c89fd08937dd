"""Parsing of messages with a limited number of fields, because a field of two bytes can need 100 bytes of RAM."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from rl4sys.errors import SpecError

_SMALL_BYTES = 2**16
_MAX_PARTS = 2**15
"""Maximum number of fields and list elements in a message and its submessages; each may need 100 bytes of RAM."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}

_Kind = TypeVar("_Kind", bound=Message)


def unpack(kind: type[_Kind], content: bytes, name: str = "") -> _Kind:
    """Parse a message. Raises `SpecError` if it is invalid or has more than ``_MAX_PARTS`` fields and list elements."""
    name = name or kind.DESCRIPTOR.name
    if len(content) > _SMALL_BYTES and _count_parts(content, 0, len(content), kind.DESCRIPTOR, _MAX_PARTS) > _MAX_PARTS:
        raise SpecError(f"not a {name}: {len(content)} bytes with more than {_MAX_PARTS} fields and list elements")
    try:
        return kind.FromString(content)
    except DecodeError as problem:
        raise SpecError(f"not a {name}: {len(content)} bytes that cannot be parsed") from problem


def _count_parts(content: bytes, start: int, end: int, kind: Any, max_parts: int) -> int:
    """Count the fields and list elements (parts) of a message. Stops at an unreadable byte or above ``max_parts``.

    ``kind`` is the protobuf descriptor of the message.
    """
    position, parts = start, 0
    while position < end and parts <= max_parts:
        tag, position = _varint(content, position)
        parts += 1
        wire_type = tag & 7
        if wire_type == _LENGTH:
            length, position = _varint(content, position)
            parts += _count_parts_within(
                content, position, min(end, position + length), kind.fields_by_number.get(tag >> 3)
            )
            position += length
        elif wire_type == _VARINT:
            _, position = _varint(content, position)
        else:
            position += _WIDTHS.get(wire_type, 0)
    return parts


def _count_parts_within(content: bytes, start: int, end: int, field: Any) -> int:
    """Count the parts of a field: all parts of a submessage, one per byte of packed numbers, none for other fields."""
    if field is None:
        return 0
    if field.message_type is not None:
        return _count_parts(content, start, end, field.message_type, _MAX_PARTS)
    return end - start if field.is_packed else 0


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at ``position``. Returns its value and the next position, at most the end of ``content``."""
    number = shift = 0
    for at in range(position, min(position + 10, len(content))):
        byte = content[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    return number, len(content)
