"""Messages between the server and its workers: a JSON object and some bytes. Nothing is pickled."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, NamedTuple

_HEAD = struct.Struct("<II")


class Frame(NamedTuple):
    """One message; ``kind`` says which."""

    kind: str
    fields: dict[str, Any]
    content: bytes = b""


def encode(frame: Frame) -> bytes:
    text = json.dumps({"kind": frame.kind, **frame.fields}).encode()
    return _HEAD.pack(len(text), len(frame.content)) + text + frame.content


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next message; `asyncio.IncompleteReadError` where the other side is gone."""
    text_size, content_size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return _decode(await reader.readexactly(text_size), await reader.readexactly(content_size))


class Pipe:
    """The worker's end, which waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, frame: Frame) -> None:
        self._connection.sendall(encode(frame))

    def receive(self) -> Frame:
        """The next message; `EOFError` where the server is gone."""
        text_size, content_size = _HEAD.unpack(self._exactly(_HEAD.size))
        return _decode(self._exactly(text_size), self._exactly(content_size))

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._connection.recv(size - len(parts))
            if not part:
                raise EOFError("the server is gone")
            parts += part
        return parts


def _decode(text: bytes, content: bytes) -> Frame:
    fields = json.loads(text)
    return Frame(fields.pop("kind"), fields, content)
