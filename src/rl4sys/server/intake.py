"""Trajectories of one policy on their way from its clients to its journal."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

from rl4sys.errors import NumericalError, SpecError
from rl4sys.server.config import Limits
from rl4sys.server.connection import Connection
from rl4sys.server.journal import Entry, Journal, Sender
from rl4sys.spec import Spec
from rl4sys.wire.messages import Problem
from rl4sys.wire.trajectories import check_trajectory, decode_trajectory

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_RATE_SECONDS = 10.0
_EXAMINED_AT_ONCE = 32


class _Arrival(NamedTuple):
    """What waits to be written; a trajectory that was refused has no entry and is only acknowledged in its turn."""

    sender: Sender
    sequence: int
    entry: Entry | None

    @property
    def size(self) -> int:
        return 0 if self.entry is None else len(self.entry.message)


class Intake:
    """Checks what arrives and writes it, all that waits in one transaction, in the order it came.

    ``written`` is called with the highest sequence of each sender that is now on disk, ``trouble`` when the disk
    takes nothing; then everything waits, and is tried again until it does.
    """

    def __init__(self, spec: Spec, memory_size: int, limits: Limits, executor: Executor) -> None:
        self._spec, self._memory_size, self._limits, self._executor = spec, memory_size, limits, executor
        self.steps_received = self.last_row = 0
        self._newest: dict[Sender, int] = {}
        self._arrivals: list[_Arrival] = []
        self._waiting_bytes = 0
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._rate: deque[tuple[float, int]] = deque()
        self._one_at_a_time = asyncio.Lock()

    @property
    def max_trajectory_steps(self) -> int:
        return self._limits.max_trajectory_steps

    async def open(
        self, path: Path, written: Callable[[dict[Sender, int]], None], trouble: Callable[[str], None]
    ) -> None:
        self._journal = await self._in_thread(Journal, path)
        self.steps_received = await self._use(Journal.received_steps)
        self.last_row = await self._use(Journal.last_row)
        self._writing = asyncio.create_task(self._write_on(written, trouble), name=f"journal {path}")

    async def admit(self, sender: Sender) -> int:
        """Get ready for a sender; returns its highest sequence that is on disk."""
        on_disk = int(await self._use(Journal.acknowledged, sender))
        self._newest[sender] = max(self._newest.get(sender, 0), on_disk)
        return on_disk

    def dismiss(self, sender: Sender) -> None:
        """Forget a sender that is connected no more, unless what it sent is still in line: the disk knows the rest."""
        if all(arrival.sender != sender for arrival in self._arrivals):
            self._newest.pop(sender, None)

    async def receive(self, connection: Connection, contents: list[bytes]) -> None:
        """Check trajectories and put them in line for the disk; waits while too much is in line already."""
        for first in range(0, len(contents), _EXAMINED_AT_ONCE):
            # Looked at by each after it waited: whoever came first may have taken the room.
            while self._waiting_bytes > self._limits.max_waiting_bytes:
                self._room.clear()
                await self._room.wait()
            for content in contents[first : first + _EXAMINED_AT_ONCE]:
                self._take(self._examine(connection, content))
            self._arrived.set()
            # Others have their turn: a message can hold very many.
            await asyncio.sleep(0)

    async def forget(self, row: int) -> None:
        """Remove rows up to ``row`` from the journal, a piece at a time so that arrivals get their turn."""
        while await self._use(Journal.forget, row):
            pass

    def steps_per_second(self) -> float:
        """Of late; may be asked from any thread."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(steps for at, steps in list(self._rate) if at > since) / _RATE_SECONDS

    async def close(self) -> None:
        """Write what has arrived. What cannot be written now was not acknowledged, and its clients still have it."""
        deadline = time.monotonic() + _LONGEST_RETRY_SECONDS
        while self._arrivals and time.monotonic() < deadline:
            await asyncio.sleep(_FIRST_RETRY_SECONDS / 10)
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        await self._use(Journal.close)

    def _take(self, arrival: _Arrival | None) -> None:
        if arrival is not None:
            self._arrivals.append(arrival)
            self._waiting_bytes += arrival.size

    def _examine(self, connection: Connection, content: bytes) -> _Arrival | None:
        """A trajectory checked; None if it is in line or on disk already, or is no trajectory at all."""
        sender, sequence, entry = connection.sender, 0, None
        try:
            trajectory, sequence = decode_trajectory(content)
            if sequence <= self._newest[sender]:
                return None
            check_trajectory(trajectory, self._spec, self.max_trajectory_steps, self._memory_size)
            entry = Entry(sender, sequence, len(trajectory), content)
            connection.steps_received += len(trajectory)
        except (SpecError, NumericalError) as problem:
            connection.trajectories_refused += 1
            connection.tell(Problem.TRAJECTORY_REFUSED, f"trajectory {sequence} was refused: {problem}", sequence)
        if sequence == 0:
            return None
        self._newest[sender] = sequence
        return _Arrival(sender, sequence, entry)

    async def _write_on(self, written: Callable[[dict[Sender, int]], None], trouble: Callable[[str], None]) -> None:
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            arrivals = list(self._arrivals)
            try:
                await self._append([arrival.entry for arrival in arrivals if arrival.entry is not None])
            except Exception as problem:
                # An edge: whatever it is, what has arrived stays in line and is tried again.
                trouble(f"cannot write to the journal: {problem}")
                await asyncio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, _LONGEST_RETRY_SECONDS)
                self._arrived.set()
            else:
                retry_seconds = _FIRST_RETRY_SECONDS
                self._clear(len(arrivals))
                written({arrival.sender: arrival.sequence for arrival in arrivals})

    async def _append(self, entries: list[Entry]) -> None:
        if not entries:
            return
        await self._use(Journal.append, entries)
        steps = sum(entry.steps for entry in entries)
        self.last_row += len(entries)
        self.steps_received += steps
        now = time.monotonic()
        self._rate.append((now, steps))
        while now - self._rate[0][0] > _RATE_SECONDS:
            self._rate.popleft()

    def _clear(self, count: int) -> None:
        self._waiting_bytes -= sum(arrival.size for arrival in self._arrivals[:count])
        del self._arrivals[:count]
        if self._waiting_bytes <= self._limits.max_waiting_bytes:
            self._room.set()

    async def _use(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the journal where it may wait for the disk."""
        async with self._one_at_a_time:
            return await self._in_thread(method, self._journal, *arguments)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
