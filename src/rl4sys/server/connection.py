"""One client's stream, as the server sees it: who it is, and what is still to be said to it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from rl4sys.server.journal import Sender
from rl4sys.server.words import fit
from rl4sys.wire.delta import digest
from rl4sys.wire.messages import Ack, Problem, Report, ServerMessage

_MOST_PROBLEMS = 32


@dataclass(frozen=True)
class Model:
    """A snapshot to be given to clients."""

    lineage: str
    version: int
    content: bytes
    digest: bytes
    wants: int

    @classmethod
    def of(cls, lineage: str, version: int, content: bytes, wants: int) -> Model:
        return cls(lineage, version, content, digest(content), wants)


@dataclass(eq=False)
class Connection:
    """What waits for a client is at most one of each: the newest model, the highest acknowledgement, a few problems."""

    sender: Sender
    peer: str
    pinned_version: int | None = None
    remote: bool = False
    held: Model | None = None
    """What the client has already, to which a difference can be made."""
    report: Report = field(default_factory=Report)
    connected_at: float = field(default_factory=time.monotonic)
    steps_received: int = 0
    trajectories_refused: int = 0
    model: Model | None = None
    taken: int = 0
    _acknowledged: int = 0
    _said: int = 0
    _problems: deque[Problem] = field(default_factory=lambda: deque(maxlen=_MOST_PROBLEMS))
    _something: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, sequence: int) -> None:
        self._acknowledged = max(self._acknowledged, sequence)
        self._something.set()

    def offer(self, model: Model, taken: int) -> None:
        """The newest wins: one that was not sent yet is replaced."""
        if self.remote or (self.pinned_version is not None and model.version != self.pinned_version):
            return
        self.model, self.taken = model, taken
        self._something.set()

    def tell(self, kind: Problem.Kind, message: str, sequence: int = 0) -> None:
        """Beyond a few, the oldest problem gives way: a client that makes many needs not see them all."""
        self._problems.append(Problem(kind=kind, message=fit(message), sequence=sequence))
        self._something.set()

    async def to_say(self) -> tuple[list[ServerMessage], Model | None]:
        """Wait for something to say; acknowledgements and problems as messages, and the model apart."""
        await self._something.wait()
        self._something.clear()
        messages = [ServerMessage(problem=problem) for problem in self._problems]
        self._problems.clear()
        if self._acknowledged > self._said:
            self._said = self._acknowledged
            messages.append(ServerMessage(ack=Ack(sequence=self._said)))
        model, self.model = self.model, None
        return messages, model
