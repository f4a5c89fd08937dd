"""Intake of a policy: checks the trajectories of its clients and writes them to the journal."""

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
from rl4sys.server.journal import EncodedTrajectory, Journal, Sender
from rl4sys.spec import Spec
from rl4sys.wire.messages import Problem
from rl4sys.wire.trajectories import check_trajectory, decode_trajectory

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_RATE_SECONDS = 10.0
_CHECK_BATCH = 32


class _Checked(NamedTuple):
    """Queued trajectory after its check. A refused trajectory has `entry` None; it is acknowledged but not written."""

    sender: Sender
    sequence: int
    entry: EncodedTrajectory | None

    @property
    def size(self) -> int:
        return 0 if self.entry is None else len(self.entry.message)


class Intake:
    """Queue of checked trajectories. Each write appends the whole queue to the journal, in order, in one transaction.

    After each write, the callback `on_written` receives the highest sequence on disk per sender. If a write fails, the
    callback `on_error` receives the message, the queue keeps its contents and the write is retried. Not thread-safe:
    use it on the event loop only.
    """

    def __init__(self, spec: Spec, memory_size: int, limits: Limits, executor: Executor) -> None:
        self._spec, self._memory_size, self._limits, self._executor = spec, memory_size, limits, executor
        self.steps_received = self.last_row = 0
        self._newest: dict[Sender, int] = {}
        """Highest sequence in the queue or on disk, per sender."""
        self._queue: list[_Checked] = []
        self._queued_bytes = 0
        self._arrived, self._has_space = asyncio.Event(), asyncio.Event()
        self._has_space.set()
        self._rate: deque[tuple[float, int]] = deque()
        self._journal_lock = asyncio.Lock()

    @property
    def max_trajectory_steps(self) -> int:
        return self._limits.max_trajectory_steps

    async def open(
        self, path: Path, on_written: Callable[[dict[Sender, int]], None], on_error: Callable[[str], None]
    ) -> None:
        self._journal = await self._in_thread(Journal, path)
        self.steps_received = await self._with_journal(Journal.received_steps)
        self.last_row = await self._with_journal(Journal.last_row)
        self._writing = asyncio.create_task(self._write_forever(on_written, on_error), name=f"journal {path}")

    async def add_sender(self, sender: Sender) -> int:
        """Register a sender before its first `receive`; return its highest sequence on disk."""
        on_disk = int(await self._with_journal(Journal.acknowledged, sender))
        self._newest[sender] = max(self._newest.get(sender, 0), on_disk)
        return on_disk

    def remove_sender(self, sender: Sender) -> None:
        """Remove a disconnected sender, unless its trajectories are still queued."""
        if all(checked.sender != sender for checked in self._queue):
            self._newest.pop(sender, None)

    async def receive(self, connection: Connection, contents: list[bytes]) -> None:
        """Check trajectories and queue them; wait while the queue is full."""
        for first in range(0, len(contents), _CHECK_BATCH):
            # The size is checked again after each wait, because another client may have filled the queue.
            while self._queued_bytes > self._limits.max_waiting_bytes:
                self._has_space.clear()
                await self._has_space.wait()
            for content in contents[first : first + _CHECK_BATCH]:
                self._enqueue(self._check(connection, content))
            self._arrived.set()
            # Let the event loop serve other clients, because a message may contain many trajectories.
            await asyncio.sleep(0)

    async def delete_rows(self, row: int) -> None:
        """Delete journal rows up to and including `row`. Small batches avoid delays of writes."""
        while await self._with_journal(Journal.delete_batch, row):
            pass

    def steps_per_second(self) -> float:
        """Return the received steps per second over the last 10 seconds. Thread-safe."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(steps for at, steps in list(self._rate) if at > since) / _RATE_SECONDS

    async def close(self) -> None:
        """Write the queued trajectories, within a time limit, and close the journal.

        Clients still have all trajectories that were not acknowledged.
        """
        deadline = time.monotonic() + _LONGEST_RETRY_SECONDS
        while self._queue and time.monotonic() < deadline:
            await asyncio.sleep(_FIRST_RETRY_SECONDS / 10)
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        await self._with_journal(Journal.close)

    def _enqueue(self, checked: _Checked | None) -> None:
        if checked is not None:
            self._queue.append(checked)
            self._queued_bytes += checked.size

    def _check(self, connection: Connection, content: bytes) -> _Checked | None:
        """Check a trajectory; return None if it is a duplicate or its sequence number cannot be read."""
        sender, sequence, entry = connection.sender, 0, None
        try:
            trajectory, sequence = decode_trajectory(content)
            if sequence <= self._newest[sender]:
                return None
            check_trajectory(trajectory, self._spec, self.max_trajectory_steps, self._memory_size)
            entry = EncodedTrajectory(sender, sequence, len(trajectory), content)
            connection.steps_received += len(trajectory)
        except (SpecError, NumericalError) as error:
            connection.trajectories_refused += 1
            connection.add_problem(Problem.TRAJECTORY_REFUSED, f"trajectory {sequence} was refused: {error}", sequence)
        if sequence == 0:
            return None
        self._newest[sender] = sequence
        return _Checked(sender, sequence, entry)

    async def _write_forever(
        self, on_written: Callable[[dict[Sender, int]], None], on_error: Callable[[str], None]
    ) -> None:
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._queue)
            try:
                await self._append([checked.entry for checked in batch if checked.entry is not None])
            except Exception as error:
                # Outermost level of the task: after any error the queue is kept and the write is retried.
                on_error(f"cannot write to the journal: {error}")
                await asyncio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, _LONGEST_RETRY_SECONDS)
                self._arrived.set()
            else:
                retry_seconds = _FIRST_RETRY_SECONDS
                self._dequeue(len(batch))
                on_written({checked.sender: checked.sequence for checked in batch})

    async def _append(self, entries: list[EncodedTrajectory]) -> None:
        if not entries:
            return
        await self._with_journal(Journal.append, entries)
        steps = sum(entry.steps for entry in entries)
        self.last_row += len(entries)
        self.steps_received += steps
        now = time.monotonic()
        self._rate.append((now, steps))
        while now - self._rate[0][0] > _RATE_SECONDS:
            self._rate.popleft()

    def _dequeue(self, count: int) -> None:
        self._queued_bytes -= sum(checked.size for checked in self._queue[:count])
        del self._queue[:count]
        if self._queued_bytes <= self._limits.max_waiting_bytes:
            self._has_space.set()

    async def _with_journal(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the journal in a thread, one call at a time."""
        async with self._journal_lock:
            return await self._in_thread(method, self._journal, *arguments)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
