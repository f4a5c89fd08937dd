"""Messages between a parent process and its child: a JSON object and optional bytes. Nothing is pickled."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, NamedTuple

_HEAD = struct.Struct("<II")


class Frame(NamedTuple):
    """One message: type (`kind`), JSON fields and optional bytes."""

    kind: str
    fields: dict[str, Any]
    content: bytes = b""


def encode(frame: Frame) -> bytes:
    """Encode a frame: lengths of the JSON text and the content, then the text and the content."""
    text = json.dumps({"kind": frame.kind, **frame.fields}).encode()
    return _HEAD.pack(len(text), len(frame.content)) + text + frame.content


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Read the next frame; raises `asyncio.IncompleteReadError` if the other process has ended."""
    text_size, content_size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return _decode(await reader.readexactly(text_size), await reader.readexactly(content_size))


class Pipe:
    """Blocking socket connection for frames. Reads are unbuffered, so a pipe works with `select`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, frame: Frame) -> None:
        self._connection.sendall(encode(frame))

    def receive(self) -> Frame:
        """Wait for the next frame; raises `EOFError` if the other process has ended."""
        text_size, content_size = _HEAD.unpack(self._read_exactly(_HEAD.size))
        return _decode(self._read_exactly(text_size), self._read_exactly(content_size))

    def close(self) -> None:
        self._connection.close()

    def _read_exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._connection.recv(size - len(parts))
            if not part:
                raise EOFError("the other process has closed the connection")
            parts += part
        return parts


def _decode(text: bytes, content: bytes) -> Frame:
    fields = json.loads(text)
    return Frame(fields.pop("kind"), fields, content)
