"""Constants of the gRPC service ``rl4sys.v1.Training``, for clients and server."""

from __future__ import annotations

from typing import Any

PROTOCOL = 1
"""Version of the protocol; client and server must use the same version."""

SERVICE = "rl4sys.v1.Training"
CONNECT, ACT, STATUS = (f"/{SERVICE}/{method}" for method in ("Connect", "Act", "Status"))

IDENTITY = r"^\w[\w.-]{0,99}$"
"""Pattern for the names of clients and policies; policy names are also directory names."""

MAX_MESSAGE_BYTES = 32 * 2**20
"""Maximum size of one message in either direction."""

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
"""gRPC options set by client and server."""
