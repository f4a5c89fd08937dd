"""Streams to the training server over gRPC."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc

from rl4sys.errors import ConfigError
from rl4sys.wire.call import Credentials, open_channel, read_file
from rl4sys.wire.messages import ActReply, ActRequest, ClientMessage, ServerMessage
from rl4sys.wire.service import ACT, CONNECT
from rl4sys.wire.unpack import unpack

if TYPE_CHECKING:
    from rl4sys.client.config import ServerConnectionConfig

_OPTIONS: list[tuple[str, Any]] = [
    # Unanswered pings detect a network that drops all packets.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # One attempt per channel: the link decides when to retry.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
]
_MAX_OUTGOING = 2
_MAX_UNCONSUMED = 4
"""Maximum number of received messages in RAM; at this number, gRPC flow control stops the server."""
_JOIN_SECONDS = 1.0


def _ignore() -> None:
    """Do nothing. Default of `Received.consume` for streams without flow control."""


@dataclass(frozen=True)
class Received:
    """Event that delivers a message from the server."""

    stream: Stream
    message: ServerMessage
    consume: Callable[[], None] = _ignore
    """Function to call after processing the message. The stream pauses while too many messages are unprocessed."""


@dataclass(frozen=True)
class Ended:
    """Event that reports the end of a stream; ``code`` is the gRPC status, OK if the server closed the stream."""

    stream: Stream
    code: str
    details: str


Event: TypeAlias = Received | Ended | None
"""Event of a stream, or None to wake the receiver."""

Deliver: TypeAlias = Callable[[Event], None]
"""Function that receives the events of a stream, called from threads of the stream."""


class Stream(Protocol):
    """Protocol of a bidirectional connection to a server; tests provide their own implementations."""

    @property
    def ready(self) -> bool:
        """True if `send` can take a message without building up a queue."""

    def send(self, message: ClientMessage) -> None: ...

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        """Request one decision from the server; thread-safe. Raises `grpc.RpcError` if the call fails."""

    def close(self) -> None: ...


class GrpcStream:
    """Stream over gRPC: a Connect call on its own channel. Events are delivered from other threads."""

    def __init__(self, endpoint: Endpoint, deliver: Deliver) -> None:
        self._endpoint, self._deliver = endpoint, deliver
        self._outgoing: queue.SimpleQueue[ClientMessage | None] = queue.SimpleQueue()
        self._queued_count = self._sent_count = 0
        self._unconsumed = threading.Semaphore(_MAX_UNCONSUMED)
        self._channel = open_channel(endpoint.address, endpoint.credentials, _OPTIONS)
        self._act = self._channel.unary_unary(
            ACT, request_serializer=ActRequest.SerializeToString, response_deserializer=partial(unpack, ActReply)
        )
        connect = self._channel.stream_stream(
            CONNECT,
            request_serializer=ClientMessage.SerializeToString,
            response_deserializer=partial(unpack, ServerMessage),
        )
        self._call = connect(self._messages(), metadata=endpoint.credentials.metadata())
        self._receiver = threading.Thread(target=self._receive, name="rl4sys-receiver", daemon=True)
        self._receiver.start()

    @property
    def ready(self) -> bool:
        return self._queued_count - self._sent_count < _MAX_OUTGOING

    def send(self, message: ClientMessage) -> None:
        self._queued_count += 1
        self._outgoing.put(message)

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        reply: ActReply = self._act(request, timeout=timeout_seconds, metadata=self._endpoint.credentials.metadata())
        return reply

    def close(self) -> None:
        self._outgoing.put(None)
        self._call.cancel()
        self._unconsumed.release()
        self._channel.close()
        self._receiver.join(_JOIN_SECONDS)

    def _messages(self) -> Iterator[ClientMessage]:
        """Yield outgoing messages to gRPC, which requests the next one after the previous one was sent."""
        while (message := self._outgoing.get()) is not None:
            yield message
            self._sent_count += 1
            self._deliver(None)

    def _receive(self) -> None:
        try:
            for message in self._call:
                self._unconsumed.acquire()
                self._deliver(Received(self, message, self._unconsumed.release))
        except grpc.RpcError:
            pass
        # After a cancellation by `close`, the channel may be closed and the status code missing.
        code, details = self._call.code(), self._call.details()
        self._deliver(Ended(self, code.name if code is not None else "UNKNOWN", details or ""))


@dataclass(frozen=True)
class Endpoint:
    """Address of a server and the credentials of this client."""

    address: str
    credentials: Credentials

    @classmethod
    def from_config(cls, config: ServerConnectionConfig) -> Endpoint:
        """Create an endpoint; reads the token and certificates from the files named in the config."""
        token = config.token
        if config.token_file is not None:
            text = read_file(config.token_file, "server.token_file").decode("utf-8", "replace")
            token = text.strip().partition("\n")[0].strip()
        return cls(config.address, Credentials(token, config.tls is not None, **_certificates(config)))

    def open(self, deliver: Deliver) -> Stream:
        return GrpcStream(self, deliver)


def _certificates(config: ServerConnectionConfig) -> dict[str, bytes]:
    tls = config.tls
    if tls is None:
        return {}
    if (tls.cert is None) != (tls.key is None):
        raise ConfigError("server.tls has only one of cert and key; a client's certificate needs both")
    files = {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
    return {name: read_file(path, f"server.tls.{name}") for name, path in files.items() if path is not None}
