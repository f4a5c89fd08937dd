"""The thread that talks to the training server, so that the host never does."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from rl4sys.client.model import Model, read_model
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Pace
from rl4sys.client.spool import Parcel, Spool, dead_spools
from rl4sys.client.stream import Deliver, Ended, Event, Received, Stream
from rl4sys.errors import ConfigError, SpecError
from rl4sys.spec import Spec
from rl4sys.wire.messages import (
    ActReply,
    ActRequest,
    ClientMessage,
    Hello,
    Problem,
    Report,
    ServerMessage,
    Snapshot,
    Trajectories,
    Welcome,
)
from rl4sys.wire.service import MAX_MESSAGE_BYTES

_log = logging.getLogger("rl4sys.client")

_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 5.0
_REFUSED_DELAY_SECONDS = 30.0
_WELCOME_SECONDS = 30.0
_REACH_SECONDS = 1.0
_STEADY_SECONDS = 1.0
"""A connection that lasted so long was a good one: the next failure is met afresh."""
_LONGEST_WAIT_SECONDS = 1.0
"""Trajectories wait at most so long for others to be sent with; and reports come at most so often."""
_MESSAGE_BYTES = 2**20
_ENVELOPE_BYTES = 1024
_LEFTOVER_MEMORY_BYTES = 4 * 2**20
_LONGEST_PROBLEM = 4000
_UNWELCOME = {"UNAUTHENTICATED": "check server.token", "PERMISSION_DENIED": "check server.token and policy_id"}


@dataclass(frozen=True)
class Identity:
    """Who a client is to the server, and where its trajectories are kept."""

    hello: Hello
    spec: Spec
    spools: Path


class Conversation:
    """The state of one stream: what was welcomed, sent and reported on it."""

    def __init__(self, stream: Stream, outbox: Outbox, send_frequency: int) -> None:
        self.stream, self._outbox, self._send_frequency = stream, outbox, send_frequency
        self.welcome: Welcome | None = None
        self._started_at = time.monotonic()
        self.hurry = self._gave_up = False
        self._waiting_since: float | None = None
        outbox.rewind()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._started_at

    def accept(self, welcome: Welcome) -> None:
        self.welcome = welcome
        self._outbox.acknowledge(welcome.acknowledged)
        # What was gathered while the server was away has waited long enough.
        self.hurry = self._outbox.unsent > 0

    def send_waiting(self) -> int:
        """Send what is due as far as the stream takes it; the number of steps."""
        self.hurry |= any(fresh.urgent for fresh in self._outbox.settle())
        if self._outbox.unsent > 0 and self._waiting_since is None:
            self._waiting_since = time.monotonic()
        steps = 0
        while self.welcome is not None and self.stream.ready and self._is_due():
            parcels = self._outbox.batch(min(_MESSAGE_BYTES, self._most_bytes()))
            if len(parcels[0].content) > self._most_bytes():
                self._give_up(parcels[0])
                continue
            self.stream.send(ClientMessage(trajectories=Trajectories(trajectory=[p.content for p in parcels])))
            steps += sum(parcel.steps for parcel in parcels)
        if self._outbox.unsent == 0:
            self.hurry, self._waiting_since = False, None
        return steps

    def _give_up(self, parcel: Parcel) -> None:
        if not self._gave_up:
            self._gave_up = True
            _log.error("a trajectory of %d bytes is more than the server takes, and given up", len(parcel.content))
        self._outbox.give_up(parcel)

    def next_look(self) -> float:
        """Seconds until something may be due that nobody will wake us for."""
        if self._waiting_since is None or self.welcome is None:
            return _LONGEST_WAIT_SECONDS
        return max(0.0, self._waiting_since + _LONGEST_WAIT_SECONDS - time.monotonic())

    def _is_due(self) -> bool:
        if self._outbox.unsent == 0:
            return False
        waited = self._waiting_since is not None and time.monotonic() - self._waiting_since >= _LONGEST_WAIT_SECONDS
        return self.hurry or waited or self._outbox.unsent >= self._send_frequency

    def _most_bytes(self) -> int:
        limit = self.welcome.max_message_bytes if self.welcome is not None else 0
        return (min(limit, MAX_MESSAGE_BYTES) if limit else MAX_MESSAGE_BYTES) - _ENVELOPE_BYTES


@dataclass
class LinkState:
    """What others may read at any time; written by the link's thread."""

    connected: bool = False
    refusal: ConfigError | None = None
    last_problem: str | None = None
    steps_sent: int = 0
    trajectories_refused: int = 0
    known_problems: set[str] = field(default_factory=set)


class Link:
    """Connects, sends what the outbox holds, publishes the models that come, and connects again when it breaks."""

    def __init__(
        self,
        identity: Identity,
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
        self._talk: Conversation | None = None
        self._stopping = self._flushing = False
        self._held: Model | None = None
        self._hold_nothing = False
        self._failures = 0
        self._leftovers: Iterator[Spool] = iter(())
        self._leftover: Leftover | None = None
        self._reported: Report | None = None
        self._reported_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"rl4sys-link-{identity.hello.client_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for something to send. Never blocks."""
        self._events.put(None)

    def wait_until_answered(self, timeout_seconds: float, *, model: bool) -> None:
        """Wait until the server has refused or welcomed this client, with ``model`` until it has sent one.

        One that cannot even be reached is not waited for as long as one that is making a policy.
        """
        started_at = time.monotonic()

        def answered() -> bool:
            served = self._pace.model is not None if model else self.state.connected
            unreachable = self._failures > 0 and time.monotonic() - started_at >= _REACH_SECONDS
            return served or unreachable or self.state.refusal is not None

        with self._pace.news:
            self._pace.news.wait_for(answered, timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything handed over is acknowledged."""
        self._flushing = True
        self.wake()
        with self._pace.news:
            return self._pace.news.wait_for(lambda: self._outbox.waiting_steps <= 0, timeout_seconds)

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        """One decision by the server; `ConnectionError` at once while there is no connection."""
        talk = self._talk
        if talk is None or not self.state.connected:
            raise ConnectionError("the server is away")
        return talk.stream.act(request, timeout_seconds)

    def close(self) -> None:
        """End the conversation and put what is left on disk."""
        self._stopping = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._connect_once()
                self._rest(self._delay())
        finally:
            self._outbox.park()

    def _connect_once(self) -> None:
        """One connection from its beginning to its end, whatever ends it."""
        try:
            self._converse()
        except Exception as problem:
            # The edge of the thread: the host must not lose its link to a mistake of ours.
            _log.exception("the link to the server failed and starts again")
            self.state.last_problem = repr(problem)
        finally:
            self._disconnect()

    def _converse(self) -> None:
        if self._stopping:
            return
        talk = self._talk = Conversation(self._open_stream(self._events.put), self._outbox, self._send_frequency)
        talk.stream.send(ClientMessage(hello=self._hello()))
        while not self._stopping:
            wait = 0.0 if self._outbox.unsettled else talk.next_look()
            if not self._handle(self._next_event(wait), talk):
                return
            self._say_what_is_due(talk)
            self._send_leftovers(talk)

    def _disconnect(self) -> None:
        talk, self._talk = self._talk, None
        steady = talk is not None and talk.welcome is not None and talk.age_seconds >= _STEADY_SECONDS
        self._failures = 0 if steady else self._failures + 1
        if talk is not None:
            talk.stream.close()
        self._close_leftover()
        self._announce(connected=False)

    def _next_event(self, timeout_seconds: float) -> Event:
        try:
            return self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def _handle(self, event: Event, talk: Conversation) -> bool:
        """False if the conversation is over."""
        if event is None:
            return talk.welcome is not None or talk.age_seconds < _WELCOME_SECONDS
        if self._leftover is not None and event.stream is self._leftover.stream:
            self._leftover.handle(event)
            return True
        if event.stream is not talk.stream:
            return True
        if isinstance(event, Ended):
            self._note_end(event, talk)
            return False
        try:
            return self._hear(event.message, talk)
        finally:
            event.heard()

    def _hear(self, message: ServerMessage, talk: Conversation) -> bool:
        kind = message.WhichOneof("kind")
        if kind == "welcome":
            self._accept(message.welcome, talk)
        elif kind == "ack":
            self._outbox.acknowledge(message.ack.sequence)
            self._announce()
        elif kind == "snapshot" and talk.welcome is not None and not self._identity.hello.remote:
            return self._adopt(message.snapshot, talk.welcome.lineage)
        elif kind == "problem":
            return self._note_problem(message.problem)
        return True

    def _accept(self, welcome: Welcome, talk: Conversation) -> None:
        talk.accept(welcome)
        self._leftovers = dead_spools(self._identity.spools)
        self.state.refusal = None
        self._reported = None
        with self._pace.news:
            if welcome.HasField("max_staleness"):
                self._pace.max_staleness = welcome.max_staleness
            if welcome.max_trajectory_steps:
                self._pace.max_steps = min(self._pace.max_steps, welcome.max_trajectory_steps)
        self._announce(connected=True)
        _log.debug("welcomed by rl4sys %s, lineage %s", welcome.release, welcome.lineage)

    def _adopt(self, message: Snapshot, lineage: str) -> bool:
        """Build the model and publish it; False if it cannot be read, and then it is asked for anew and whole."""
        held = self._held
        newer = held is None or held.lineage != lineage or message.version > held.version
        if not newer and not self._identity.hello.HasField("pinned_version"):
            return True
        try:
            model = read_model(message, lineage, held, self._identity.spec)
        except SpecError as problem:
            self._note(f"a model could not be used: {problem}", logging.WARNING)
            self._hold_nothing = True
            return False
        self._held, self._hold_nothing = model, False
        self._pace.publish(model)
        _log.debug("version %d arrived, %d bytes", model.version, message.ByteSize())
        return True

    def _say_what_is_due(self, talk: Conversation) -> None:
        if talk.welcome is None:
            self._outbox.settle()
            return
        self._flushing &= self._outbox.waiting_steps > 0
        talk.hurry |= self._flushing
        self.state.steps_sent += talk.send_waiting()
        self._report(talk)

    def _report(self, talk: Conversation) -> None:
        """Tell at once when a model was adopted, else at most once a second, and only what changed."""
        figures, now = self._pace.figures(), time.monotonic()
        adopted = self._reported is None or self._reported.adopted_version != (figures.adopted_version or 0)
        if not talk.stream.ready or (not adopted and now - self._reported_at < _LONGEST_WAIT_SECONDS):
            return
        report = Report(
            adopted_version=figures.adopted_version or 0,
            decisions=figures.decisions,
            fallback_decisions=figures.fallback_decisions,
            dropped_steps=self._outbox.dropped_steps,
            late_rewards=figures.late_rewards,
            outbox_bytes=self._outbox.memory_bytes,
            spool_bytes=self._outbox.spool_bytes,
        )
        if report != self._reported:
            self._reported, self._reported_at = report, now
            talk.stream.send(ClientMessage(report=report))

    def _hello(self) -> Hello:
        hello = Hello()
        hello.CopyFrom(self._identity.hello)
        if self._held is not None and not self._hold_nothing:
            hello.held.CopyFrom(self._held.held())
        return hello

    def _note_problem(self, problem: Problem) -> bool:
        if problem.kind == Problem.REFUSED:
            self._note_refusal(f"the server refused this client: {problem.message}")
            return False
        if problem.kind == Problem.TRAJECTORY_REFUSED:
            self.state.trajectories_refused += 1
        self._note(problem.message, logging.WARNING)
        return True

    def _note_end(self, ended: Ended, talk: Conversation) -> None:
        if self._stopping or self.state.refusal is not None:
            return
        text = f"{ended.details} ({ended.code})"
        if ended.code in _UNWELCOME:
            self._note_refusal(f"the server refused this client: {text}; {_UNWELCOME[ended.code]}")
        else:
            self.state.last_problem = text
            level = logging.WARNING if talk.welcome is not None else logging.DEBUG
            _log.log(level, "the connection to the server ended: %s", text)

    def _note_refusal(self, text: str) -> None:
        text = text[:_LONGEST_PROBLEM]
        self._note(text, logging.ERROR)
        self.state.refusal = ConfigError(text)
        self._announce()

    def _note(self, text: str, level: int) -> None:
        """Remember a problem; log it the first time."""
        text = text[:_LONGEST_PROBLEM]
        self.state.last_problem = text
        if text not in self.state.known_problems and len(self.state.known_problems) < 100:
            self.state.known_problems.add(text)
            _log.log(level, "%s", text)

    def _announce(self, *, connected: bool | None = None) -> None:
        with self._pace.news:
            if connected is not None:
                self.state.connected = connected
            self._pace.news.notify_all()

    def _delay(self) -> float:
        """Exponential backoff with full jitter, so that clients of a server that died do not come back as one."""
        if self.state.refusal is not None:
            return _REFUSED_DELAY_SECONDS
        return self._jitter() * self._delay_ceiling()

    def _delay_ceiling(self) -> float:
        return min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(max(0, self._failures - 1), 10))

    def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, keeping what comes in meanwhile in bounds."""
        until = time.monotonic() + seconds
        while not self._stopping and (remaining := until - time.monotonic()) > 0:
            self._next_event(0.0 if self._outbox.unsettled else remaining)
            self._outbox.settle()

    def _send_leftovers(self, talk: Conversation) -> None:
        """Send what processes that died had on disk, each under the name it had; the living come first."""
        served = self._identity.hello.remote or self._pace.model is not None
        if talk.welcome is None or not served:
            return
        if self._leftover is None and (spool := next(self._leftovers, None)) is not None:
            _log.debug("sending what an earlier process of this client left in %s", spool.directory)
            self._leftover = Leftover(spool, self._open_stream, self._events.put)
        if self._leftover is not None and not self._leftover.advance():
            self._close_leftover()
            # There may be another.
            self.wake()

    def _close_leftover(self) -> None:
        leftover, self._leftover = self._leftover, None
        if leftover is not None:
            leftover.close()


class Leftover:
    """The spool of a process that died, sent over a stream of its own, beside the living conversation."""

    def __init__(self, spool: Spool, open_stream: Callable[[Deliver], Stream], deliver: Deliver) -> None:
        self._spool, self._outbox = spool, Outbox(_LEFTOVER_MEMORY_BYTES, spool)
        self._over = False
        self._heard_at = time.monotonic()
        self._talk: Conversation | None = None
        try:
            hello = Hello.FromString(spool.hello)
        except DecodeError:
            self._set_aside("it does not say whose it is")
            return
        # No models are wanted, only the acknowledgement.
        hello.remote = True
        self._talk = Conversation(open_stream(deliver), self._outbox, 1)
        self._talk.stream.send(ClientMessage(hello=hello))

    @property
    def stream(self) -> Stream | None:
        return None if self._talk is None else self._talk.stream

    def handle(self, event: Received | Ended) -> None:
        """What was said on its stream."""
        if isinstance(event, Ended):
            self._over = True
            return
        self._hear(event.message)
        event.heard()

    def advance(self) -> bool:
        """Send what is due; False when all is acknowledged and removed, or set aside, or the connection failed."""
        if self._over or self._talk is None or self._outbox.waiting_steps <= 0:
            return False
        if time.monotonic() - self._heard_at > _WELCOME_SECONDS:
            if self._talk.welcome is not None:
                self._set_aside("the server neither takes nor refuses it")
            return False
        self._talk.send_waiting()
        return True

    def close(self) -> None:
        if self._talk is not None:
            self._talk.stream.close()
        self._outbox.park()

    def _hear(self, message: ServerMessage) -> None:
        kind = message.WhichOneof("kind")
        if kind == "welcome" and self._talk is not None:
            self._heard_at = time.monotonic()
            self._talk.accept(message.welcome)
        elif kind == "ack":
            self._heard_at = time.monotonic()
            self._outbox.acknowledge(message.ack.sequence)
        elif kind == "problem" and message.problem.kind == Problem.REFUSED:
            self._set_aside(message.problem.message)

    def _set_aside(self, reason: str) -> None:
        self._over = True
        _log.warning("what an earlier process left is kept in %s, unsent: %s", self._spool.set_aside(), reason)
