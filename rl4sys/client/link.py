"""Background thread for all communication with the training server."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rl4sys.client.connection import MAX_SEND_DELAY_SECONDS, WELCOME_TIMEOUT_SECONDS, Connection
from rl4sys.client.identity import ClientIdentity
from rl4sys.client.model import Model, read_model
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Pace
from rl4sys.client.spool import Spool, abandoned_spools
from rl4sys.client.spool_sender import SpoolSender
from rl4sys.client.stream import Deliver, Ended, Event, Stream
from rl4sys.errors import ConfigError, SpecError
from rl4sys.wire.messages import (
    ActReply,
    ActRequest,
    ClientMessage,
    Hello,
    Problem,
    Report,
    ServerMessage,
    Snapshot,
    Welcome,
)

_log = logging.getLogger("rl4sys.client")

_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.1, 5.0
_REFUSED_DELAY_SECONDS = 30.0
_REACH_TIMEOUT_SECONDS = 1.0
_STEADY_SECONDS = 1.0
"""Minimum duration in seconds of a connection that resets the retry delay."""
_MAX_ERROR_LENGTH = 4000
_MAX_LOGGED_ERRORS = 100
_REFUSAL_HINTS = {"UNAUTHENTICATED": "check server.token", "PERMISSION_DENIED": "check server.token and policy_id"}


@dataclass
class LinkState:
    """Connection status and counters of the link. Written by the link's thread, readable from any thread."""

    connected: bool = False
    refusal: ConfigError | None = None
    last_problem: str | None = None
    steps_sent: int = 0
    trajectories_refused: int = 0
    logged_errors: set[str] = field(default_factory=set)


class Link:
    """Thread that connects to the server, sends the outbox, publishes received models and reconnects after failures."""

    def __init__(
        self,
        identity: ClientIdentity,
        open_stream: Callable[[Deliver], Stream],
        outbox: Outbox,
        pace: Pace,
        send_frequency: int = 1,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._identity, self._open_stream, self._outbox, self._pace = identity, open_stream, outbox, pace
        self._send_frequency, self._jitter = send_frequency, jitter
        self.state = LinkState()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._stopping = self._flushing = False
        self._held_model: Model | None = None
        self._request_full_model = False
        self._failures = 0
        self._abandoned_spools: Iterator[Spool] = iter(())
        self._spool_sender: SpoolSender | None = None
        self._reported: Report | None = None
        self._reported_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"rl4sys-link-{identity.hello.client_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the link's thread, for example after a recording was submitted. Never blocks."""
        self._events.put(None)

    def wait_until_answered(self, timeout_seconds: float, *, model: bool) -> None:
        """Wait until the server has welcomed or refused this client and, if ``model`` is set, has sent a model.

        Gives up early if the server is unreachable.
        """
        started_at = time.monotonic()

        def answered() -> bool:
            served = self._pace.model is not None if model else self.state.connected
            unreachable = self._failures > 0 and time.monotonic() - started_at >= _REACH_TIMEOUT_SECONDS
            return served or unreachable or self.state.refusal is not None

        with self._pace.changed:
            self._pace.changed.wait_for(answered, timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all submitted recordings are acknowledged. Returns False on timeout."""
        self._flushing = True
        self.wake()
        with self._pace.changed:
            return self._pace.changed.wait_for(lambda: self._outbox.waiting_steps <= 0, timeout_seconds)

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        """Request one decision from the server. Raises `ConnectionError` immediately if there is no connection."""
        connection = self._connection
        if connection is None or not self.state.connected:
            raise ConnectionError("not connected to the server")
        return connection.stream.act(request, timeout_seconds)

    def close(self) -> None:
        """Close the connection and write unsent trajectories to disk."""
        self._stopping = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._run_guarded()
                self._wait_before_retry(self._retry_delay())
        finally:
            self._outbox.persist()

    def _run_guarded(self) -> None:
        """Run one connection and catch all exceptions: a bug must not end the link's thread."""
        try:
            self._run_connection()
        except Exception as problem:
            _log.exception("the link to the server failed and is restarted")
            self.state.last_problem = repr(problem)
        finally:
            self._disconnect()

    def _run_connection(self) -> None:
        if self._stopping:
            return
        stream = self._open_stream(self._events.put)
        connection = self._connection = Connection(stream, self._outbox, self._send_frequency)
        stream.send(ClientMessage(hello=self._hello()))
        while not self._stopping:
            timeout = 0.0 if self._outbox.has_incoming else connection.seconds_until_due()
            if not self._on_event(self._next_event(timeout), connection):
                return
            self._send_due(connection)
            self._send_abandoned_spools(connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        steady = connection is not None and connection.welcome is not None and connection.age_seconds >= _STEADY_SECONDS
        self._failures = 0 if steady else self._failures + 1
        if connection is not None:
            connection.stream.close()
        self._close_spool_sender()
        self._notify_waiters(connected=False)

    def _next_event(self, timeout_seconds: float) -> Event:
        try:
            return self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def _on_event(self, event: Event, connection: Connection) -> bool:
        """Handle an event of any stream. Returns False if the connection has ended."""
        if event is None:
            return connection.welcome is not None or connection.age_seconds < WELCOME_TIMEOUT_SECONDS
        if self._spool_sender is not None and event.stream is self._spool_sender.stream:
            self._spool_sender.on_event(event)
            return True
        if event.stream is not connection.stream:
            return True
        if isinstance(event, Ended):
            self._on_stream_end(event, connection)
            return False
        try:
            return self._on_message(event.message, connection)
        finally:
            event.consume()

    def _on_message(self, message: ServerMessage, connection: Connection) -> bool:
        kind = message.WhichOneof("kind")
        if kind == "welcome":
            self._on_welcome(message.welcome, connection)
        elif kind == "ack":
            self._outbox.acknowledge(message.ack.sequence)
            self._notify_waiters()
        elif kind == "snapshot" and connection.welcome is not None and not self._identity.hello.remote:
            return self._on_snapshot(message.snapshot, connection.welcome.lineage)
        elif kind == "problem":
            return self._on_problem(message.problem)
        return True

    def _on_welcome(self, welcome: Welcome, connection: Connection) -> None:
        connection.on_welcome(welcome)
        self._abandoned_spools = abandoned_spools(self._identity.spools)
        self.state.refusal = None
        self._reported = None
        with self._pace.changed:
            if welcome.HasField("max_staleness"):
                self._pace.max_staleness = welcome.max_staleness
            if welcome.max_trajectory_steps:
                self._pace.max_steps = min(self._pace.max_steps, welcome.max_trajectory_steps)
        self._notify_waiters(connected=True)
        _log.debug("welcomed by rl4sys %s, lineage %s", welcome.release, welcome.lineage)

    def _on_snapshot(self, message: Snapshot, lineage: str) -> bool:
        """Build the model of a Snapshot message and publish it.

        Returns False if the model is invalid; the next connection then requests the full model.
        """
        held = self._held_model
        newer = held is None or held.lineage != lineage or message.version > held.version
        if not newer and not self._identity.hello.HasField("pinned_version"):
            return True
        try:
            model = read_model(message, lineage, held, self._identity.spec)
        except SpecError as problem:
            self._report_error(f"the received model is invalid: {problem}", logging.WARNING)
            self._request_full_model = True
            return False
        self._held_model, self._request_full_model = model, False
        self._pace.publish(model)
        _log.debug("received version %d of the model (%d bytes)", model.version, message.ByteSize())
        return True

    def _send_due(self, connection: Connection) -> None:
        if connection.welcome is None:
            self._outbox.encode_incoming()
            return
        self._flushing &= self._outbox.waiting_steps > 0
        connection.send_immediately |= self._flushing
        self.state.steps_sent += connection.send_waiting()
        self._send_report(connection)

    def _send_report(self, connection: Connection) -> None:
        """Send a report immediately after a model was adopted, otherwise once per second if its content changed."""
        decisions, now = self._pace.statistics(), time.monotonic()
        version = decisions.adopted_version or 0
        adopted = self._reported is None or self._reported.adopted_version != version
        if not connection.stream.ready or (not adopted and now - self._reported_at < MAX_SEND_DELAY_SECONDS):
            return
        report = Report(
            adopted_version=version,
            decisions=decisions.decisions,
            fallback_decisions=decisions.fallback_decisions,
            dropped_steps=self._outbox.dropped_steps,
            late_rewards=decisions.late_rewards,
            outbox_bytes=self._outbox.memory_bytes,
            spool_bytes=self._outbox.spool_bytes,
        )
        if report != self._reported:
            self._reported, self._reported_at = report, now
            connection.stream.send(ClientMessage(report=report))

    def _hello(self) -> Hello:
        hello = Hello()
        hello.CopyFrom(self._identity.hello)
        if self._held_model is not None and not self._request_full_model:
            hello.held.CopyFrom(self._held_model.held())
        return hello

    def _on_problem(self, problem: Problem) -> bool:
        if problem.kind == Problem.REFUSED:
            self._set_refusal(f"the server refused this client: {problem.message}")
            return False
        if problem.kind == Problem.TRAJECTORY_REFUSED:
            self.state.trajectories_refused += 1
        self._report_error(problem.message, logging.WARNING)
        return True

    def _on_stream_end(self, ended: Ended, connection: Connection) -> None:
        if self._stopping or self.state.refusal is not None:
            return
        text = f"{ended.details} ({ended.code})"
        if ended.code in _REFUSAL_HINTS:
            self._set_refusal(f"the server refused this client: {text}; {_REFUSAL_HINTS[ended.code]}")
        else:
            self.state.last_problem = text
            level = logging.WARNING if connection.welcome is not None else logging.DEBUG
            _log.log(level, "the connection to the server ended: %s", text)

    def _set_refusal(self, text: str) -> None:
        text = text[:_MAX_ERROR_LENGTH]
        self._report_error(text, logging.ERROR)
        self.state.refusal = ConfigError(text)
        self._notify_waiters()

    def _report_error(self, text: str, level: int) -> None:
        """Store an error message as `last_problem`, and log it unless the same message was logged before."""
        text = text[:_MAX_ERROR_LENGTH]
        self.state.last_problem = text
        if text not in self.state.logged_errors and len(self.state.logged_errors) < _MAX_LOGGED_ERRORS:
            self.state.logged_errors.add(text)
            _log.log(level, "%s", text)

    def _notify_waiters(self, *, connected: bool | None = None) -> None:
        with self._pace.changed:
            if connected is not None:
                self.state.connected = connected
            self._pace.changed.notify_all()

    def _retry_delay(self) -> float:
        """Return the seconds before the next attempt to connect: exponential backoff with full jitter.

        The jitter keeps the clients of a failed server from reconnecting all at once.
        """
        if self.state.refusal is not None:
            return _REFUSED_DELAY_SECONDS
        return self._jitter() * self._max_retry_delay()

    def _max_retry_delay(self) -> float:
        return min(_MAX_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(max(0, self._failures - 1), 10))

    def _wait_before_retry(self, seconds: float) -> None:
        """Wait before the next attempt to connect, and encode recordings in the meantime."""
        until = time.monotonic() + seconds
        while not self._stopping and (remaining := until - time.monotonic()) > 0:
            self._next_event(0.0 if self._outbox.has_incoming else remaining)
            self._outbox.encode_incoming()

    def _send_abandoned_spools(self, connection: Connection) -> None:
        """Send the spools of terminated instances of this client, each on a stream with its own Hello.

        The current instance has priority: nothing is sent before its first model.
        """
        served = self._identity.hello.remote or self._pace.model is not None
        if connection.welcome is None or not served:
            return
        if self._spool_sender is None and (spool := next(self._abandoned_spools, None)) is not None:
            _log.debug("sending the spool of an earlier process of this client: %s", spool.directory)
            self._spool_sender = SpoolSender(spool, self._open_stream, self._events.put)
        if self._spool_sender is not None and not self._spool_sender.advance():
            self._close_spool_sender()
            # Wake the thread to check for another spool.
            self.wake()

    def _close_spool_sender(self) -> None:
        sender, self._spool_sender = self._spool_sender, None
        if sender is not None:
            sender.close()
