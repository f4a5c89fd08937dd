"""The methods of the service ``rl4sys.v1.Training``, for whichever side calls or answers them."""

from __future__ import annotations

from typing import Any

PROTOCOL = 1
"""The version of the conversation; both sides must speak the same."""

SERVICE = "rl4sys.v1.Training"
CONNECT, ACT, STATUS = (f"/{SERVICE}/{method}" for method in ("Connect", "Act", "Status"))

IDENTITY = r"^\w[\w.-]{0,99}$"
"""What clients and policies may be called; policies are also directories."""

MAX_MESSAGE_BYTES = 32 * 2**20
"""The most one message may take in either direction."""

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
"""What both sides set."""
