"""One conversation with a training server over gRPC: messages out, messages in, the end."""

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
    from rl4sys.client.config import ServerSettings

_OPTIONS: list[tuple[str, Any]] = [
    # A network that swallows everything is noticed by the pings it does not answer.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # One attempt per channel: when to try again is decided by the link.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
]
_AT_ONCE = 2
_UNHEARD_AT_ONCE = 4
"""Messages of the server in memory: one that says more than can be heard is held back by gRPC."""
_JOIN_SECONDS = 1.0


def _nobody_waits() -> None:
    """Where a stream does not wait for what it delivers to be heard."""


@dataclass(frozen=True)
class Received:
    """The server said something."""

    stream: Stream
    message: ServerMessage
    heard: Callable[[], None] = _nobody_waits
    """To be called once it was dealt with; the stream reads on only while few are not."""


@dataclass(frozen=True)
class Ended:
    """The conversation is over; ``code`` is gRPC's word for why, OK if the server just stopped."""

    stream: Stream
    code: str
    details: str


Event: TypeAlias = Received | Ended | None
"""None says only that it is time to look again."""

Deliver: TypeAlias = Callable[[Event], None]


class Stream(Protocol):
    """What the link needs of a connection; tests may bring their own."""

    @property
    def ready(self) -> bool:
        """Whether another message may be sent without piling up."""

    def send(self, message: ClientMessage) -> None: ...

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        """One decision by the server; raises `grpc.RpcError`. From any thread."""

    def close(self) -> None: ...


class GrpcStream:
    """A Connect call on a channel of its own. Whatever happens is delivered from other threads."""

    def __init__(self, endpoint: Endpoint, deliver: Deliver) -> None:
        self._endpoint, self._deliver = endpoint, deliver
        self._outgoing: queue.SimpleQueue[ClientMessage | None] = queue.SimpleQueue()
        self._given = self._gone = 0
        self._unheard = threading.Semaphore(_UNHEARD_AT_ONCE)
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
        return self._given - self._gone < _AT_ONCE

    def send(self, message: ClientMessage) -> None:
        self._given += 1
        self._outgoing.put(message)

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        reply: ActReply = self._act(request, timeout=timeout_seconds, metadata=self._endpoint.credentials.metadata())
        return reply

    def close(self) -> None:
        self._outgoing.put(None)
        self._call.cancel()
        self._unheard.release()
        self._channel.close()
        self._receiver.join(_JOIN_SECONDS)

    def _messages(self) -> Iterator[ClientMessage]:
        """Read by gRPC, which asks for another message when the one before has left."""
        while (message := self._outgoing.get()) is not None:
            yield message
            self._gone += 1
            self._deliver(None)

    def _receive(self) -> None:
        try:
            for message in self._call:
                self._unheard.acquire()
                self._deliver(Received(self, message, self._unheard.release))
        except grpc.RpcError:
            pass
        # Cancelled by ourselves, the channel may be gone too.
        code, details = self._call.code(), self._call.details()
        self._deliver(Ended(self, code.name if code is not None else "UNKNOWN", details or ""))


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and how this client shows who it is."""

    address: str
    credentials: Credentials

    @classmethod
    def of(cls, settings: ServerSettings) -> Endpoint:
        """With the token and certificates read from their files."""
        token = settings.token
        if settings.token_file is not None:
            text = read_file(settings.token_file, "server.token_file").decode("utf-8", "replace")
            token = text.strip().partition("\n")[0].strip()
        return cls(settings.address, Credentials(token, settings.tls is not None, **_certificates(settings)))

    def open(self, deliver: Deliver) -> Stream:
        return GrpcStream(self, deliver)


def _certificates(settings: ServerSettings) -> dict[str, bytes]:
    tls = settings.tls
    if tls is None:
        return {}
    if (tls.cert is None) != (tls.key is None):
        raise ConfigError("server.tls has only one of cert and key; a client's certificate needs both")
    files = {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
    return {name: read_file(path, f"server.tls.{name}") for name, path in files.items() if path is not None}
