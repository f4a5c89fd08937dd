"""Transfer of spools that terminated instances of a client left on disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from google.protobuf.message import DecodeError

from rl4sys.client.connection import WELCOME_TIMEOUT_SECONDS, Connection
from rl4sys.client.outbox import Outbox
from rl4sys.client.recording import Recording
from rl4sys.client.spool import Spool
from rl4sys.client.stream import Deliver, Ended, Received, Stream
from rl4sys.wire.messages import ClientMessage, Hello, Problem, ServerMessage

_log = logging.getLogger("rl4sys.client")

_MEMORY_BYTES = 4 * 2**20


def _reject_recording(recording: Recording) -> bytes:
    raise RuntimeError("an abandoned spool accepts no recordings")


class SpoolSender:
    """Sends the spool of a terminated client instance on a separate stream, next to the main connection."""

    def __init__(self, spool: Spool, open_stream: Callable[[Deliver], Stream], deliver: Deliver) -> None:
        self._spool, self._outbox = spool, Outbox(_MEMORY_BYTES, spool, _reject_recording)
        self._over = False
        self._last_message_at = time.monotonic()
        self._connection: Connection | None = None
        try:
            hello = Hello.FromString(spool.hello)
        except DecodeError:
            self._mark_refused("its Hello message cannot be parsed")
            return
        # The server sends no models to remote clients; this stream needs only acknowledgements.
        hello.remote = True
        self._connection = Connection(open_stream(deliver), self._outbox, 1)
        self._connection.stream.send(ClientMessage(hello=hello))

    @property
    def stream(self) -> Stream | None:
        return None if self._connection is None else self._connection.stream

    def on_event(self, event: Received | Ended) -> None:
        """Handle an event of this sender's stream."""
        if isinstance(event, Ended):
            self._over = True
            return
        self._on_message(event.message)
        event.consume()

    def advance(self) -> bool:
        """Send due trajectories.

        Returns False if all trajectories are acknowledged, the server refused the spool, or the connection failed.
        """
        if self._over or self._connection is None or self._outbox.waiting_steps <= 0:
            return False
        if time.monotonic() - self._last_message_at > WELCOME_TIMEOUT_SECONDS:
            if self._connection.welcome is not None:
                self._mark_refused("the server did not acknowledge its trajectories in time")
            return False
        self._connection.send_waiting()
        return True

    def close(self) -> None:
        """Close the stream; unacknowledged trajectories stay on disk."""
        if self._connection is not None:
            self._connection.stream.close()
        self._outbox.persist()

    def _on_message(self, message: ServerMessage) -> None:
        kind = message.WhichOneof("kind")
        if kind == "welcome" and self._connection is not None:
            self._last_message_at = time.monotonic()
            self._connection.on_welcome(message.welcome)
        elif kind == "ack":
            self._last_message_at = time.monotonic()
            self._outbox.acknowledge(message.ack.sequence)
        elif kind == "problem" and message.problem.kind == Problem.REFUSED:
            self._mark_refused(message.problem.message)

    def _mark_refused(self, reason: str) -> None:
        self._over = True
        _log.warning(
            "the spool of an earlier process was not sent and is kept in %s: %s", self._spool.mark_refused(), reason
        )
