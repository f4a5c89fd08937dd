"""Connection of one client: identity of the client, and messages waiting to be sent to the client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from rl4sys.server.journal import Sender
from rl4sys.server.sanitize import encodable
from rl4sys.wire.delta import digest
from rl4sys.wire.messages import Ack, Problem, Report, ServerMessage

_MAX_PROBLEMS = 32


@dataclass(frozen=True)
class PublishedModel:
    """Encoded snapshot of one policy version, ready to be sent to clients."""

    lineage: str
    version: int
    content: bytes
    digest: bytes
    wants: int

    @classmethod
    def of(cls, lineage: str, version: int, content: bytes, wants: int) -> PublishedModel:
        return cls(lineage, version, content, digest(content), wants)


@dataclass(eq=False)
class Connection:
    """Connected client, with the messages waiting to be sent.

    At most one model (the newest), one acknowledgement (the highest) and a few problem messages are queued.
    """

    sender: Sender
    peer: str
    pinned_version: int | None = None
    remote: bool = False
    held: PublishedModel | None = None
    """Model that the client already holds; deltas are encoded against this model."""
    report: Report = field(default_factory=Report)
    connected_at: float = field(default_factory=time.monotonic)
    steps_received: int = 0
    trajectories_refused: int = 0
    model: PublishedModel | None = None
    """Model waiting to be sent."""
    last_learned: int = 0
    """Highest sequence number of this client instance that `model` was trained on."""
    _acknowledged: int = 0
    _acknowledgement_sent: int = 0
    _problems: deque[Problem] = field(default_factory=lambda: deque(maxlen=_MAX_PROBLEMS))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, sequence: int) -> None:
        self._acknowledged = max(self._acknowledged, sequence)
        self._changed.set()

    def offer_model(self, model: PublishedModel, last_learned: int) -> None:
        """Replace the model waiting to be sent.

        Does nothing if the client pinned another version or uses remote inference.
        """
        if self.remote or (self.pinned_version is not None and model.version != self.pinned_version):
            return
        self.model, self.last_learned = model, last_learned
        self._changed.set()

    def add_problem(self, kind: Problem.Kind, message: str, sequence: int = 0) -> None:
        """Queue a problem message; the oldest message is dropped if the queue is full."""
        self._problems.append(Problem(kind=kind, message=encodable(message), sequence=sequence))
        self._changed.set()

    async def next_messages(self) -> tuple[list[ServerMessage], PublishedModel | None]:
        """Wait until anything is queued; return the queued messages and, separately, the queued model or None."""
        await self._changed.wait()
        self._changed.clear()
        messages = [ServerMessage(problem=problem) for problem in self._problems]
        self._problems.clear()
        if self._acknowledged > self._acknowledgement_sent:
            self._acknowledgement_sent = self._acknowledged
            messages.append(ServerMessage(ack=Ack(sequence=self._acknowledged)))
        model, self.model = self.model, None
        return messages, model
