"""Supervisor of one learner process: starts it, restarts it after a failure, and stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from rl4sys.errors import ConfigError, RunError
from rl4sys.server.processes import start_learner_process
from rl4sys.server.task import LearnerTask
from rl4sys.workers.frames import Frame, encode, read_frame

_log = logging.getLogger("rl4sys.server")

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_MAX_ATTEMPTS = 3
_STOP_SECONDS = 20.0


class _Failure(NamedTuple):
    """Reason why a learner process ended."""

    message: str
    transient: bool
    """True if the cause may disappear, such as a full disk. Restarts after transient failures are unlimited."""


class Supervisor:
    """Keeps the learner process of a policy running. Not thread-safe: use it on the event loop only.

    Messages of the process are queued until `subscribe` is called.
    """

    def __init__(self, task: LearnerTask, executor: Executor) -> None:
        self._task, self._executor = task, executor
        self._unhandled: list[Frame] = []
        self._on_message: Callable[[Frame], None] = self._unhandled.append
        self._on_error: Callable[[str], None] = _ignore_error
        self.state = "starting"
        """State of the learner process: "starting", "learning" or "failed"."""
        self._row = 0
        self._journal_row = 0
        self._awake = False
        self._stopping = False
        self._process: BaseProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._numbers = count()
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> dict[str, Any]:
        """Start the process; return the description of the policy that the process sends.

        Raises `ConfigError` or `RunError` if the policy cannot be created or opened.
        """
        self._supervising = asyncio.create_task(self._supervise(), name=f"supervise {self._task.policy_id}")
        return await self._ready

    def subscribe(self, on_message: Callable[[Frame], None], on_error: Callable[[str], None]) -> None:
        """Call `on_message` for each message about learning, and `on_error` with the reason when the process fails."""
        self._on_message, self._on_error = on_message, on_error
        for frame in self._unhandled:
            on_message(frame)
        self._unhandled.clear()

    def notify_written(self, row: int) -> None:
        """Set the last row of the journal, and wake the process if it is idle."""
        self._journal_row = row
        if not self._awake and self._writer is not None and self._row < row:
            self._awake = True
            self._writer.write(encode(Frame("wake", {})))

    async def request_decision(self, request: bytes) -> Frame:
        """Request a decision from the process. Raises `RunError` if the process is not available.

        The process answers after the trajectory that it is currently learning from.
        """
        if self._writer is None or len(self._pending) >= self._task.server.limits.max_clients:
            raise RunError(f"the learner of policy '{self._task.policy_id}' cannot select actions now; retry later")
        number = next(self._numbers)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self._writer.write(encode(Frame("act", {"number": number}, request)))
        try:
            return await answer
        finally:
            del self._pending[number]

    async def stop(self) -> None:
        """Tell the process to save a checkpoint and exit; kill the process after a timeout."""
        self._stopping = True
        if self._writer is not None:
            with suppress(ConnectionError):
                self._writer.write(encode(Frame("stop", {})))
                await self._writer.drain()
            await asyncio.wait([self._supervising], timeout=_STOP_SECONDS)
        if self._process is not None and self._process.is_alive():
            # The process is in a long update. The next process repeats the update from the checkpoint and the journal.
            self._process.kill()
            await self._in_thread(self._process.join)
        self._supervising.cancel()
        await asyncio.gather(self._supervising, return_exceptions=True)

    async def _supervise(self) -> None:
        """Restart the process after failures; give up after several permanent failures without progress."""
        attempts, row, retry_seconds = 0, -1, _FIRST_RETRY_SECONDS
        while not self._stopping:
            failure = await self._run_process()
            if self._stopping:
                return
            if not self._ready.done():
                error_type = RunError if failure.transient else ConfigError
                self._ready.set_exception(error_type(failure.message))
                return
            progressed = self._row > row
            row, attempts = self._row, 1 if progressed else attempts + 1
            self._on_error(f"learning failed: {failure.message}")
            if attempts >= _MAX_ATTEMPTS and not failure.transient:
                self.state = "failed"
                return
            retry_seconds = _FIRST_RETRY_SECONDS if progressed else min(2 * retry_seconds, _LONGEST_RETRY_SECONDS)
            await asyncio.sleep(retry_seconds)

    async def _run_process(self) -> _Failure:
        """Start one process and handle its messages until it ends."""
        try:
            self._process, connection = await self._in_thread(start_learner_process, self._task)
            reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        except (OSError, EOFError) as error:
            return _Failure(f"the learner process could not be started: {error!r}", transient=True)
        # A new process reads the journal before it becomes idle and needs no wake message.
        self._awake = True
        failure = _Failure("the learner process ended unexpectedly", transient=False)
        try:
            while True:
                frame = await read_frame(reader)
                if frame.kind == "failed":
                    failure = self._read_failure(frame)
                else:
                    self._handle(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            return failure
        except Exception as error:
            # Outermost level: an error in a handler concerns this policy only, and its learner is restarted.
            _log.exception("error while handling a learner message", extra={"policy": self._task.policy_id})
            return _Failure(f"the server could not handle a message from the learner: {error!r}", transient=False)
        finally:
            self._writer.close()
            self._writer = None
            self._fail_pending_requests()
            await self._in_thread(self._process.join)

    def _read_failure(self, frame: Frame) -> _Failure:
        if "traceback" in frame.fields:
            _log.error("learner failed\n%s", frame.fields["traceback"], extra={"policy": self._task.policy_id})
        return _Failure(frame.fields["message"], frame.fields["transient"])

    def _handle(self, frame: Frame) -> None:
        if frame.kind == "ready":
            self.state = "learning"
            if not self._ready.done():
                self._ready.set_result(frame.fields)
        elif frame.kind == "idle":
            self._awake = False
            self.notify_written(self._journal_row)
        elif frame.kind == "acted":
            answer = self._pending.get(frame.fields["number"])
            if answer is not None and not answer.done():
                answer.set_result(frame)
        else:
            self._row = frame.fields.get("row", self._row) if frame.kind == "progress" else self._row
            self._on_message(frame)

    def _fail_pending_requests(self) -> None:
        for answer in self._pending.values():
            if not answer.done():
                error = RunError(f"the learner of policy '{self._task.policy_id}' is being restarted; retry later")
                answer.set_exception(error)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


def _ignore_error(message: str) -> None:
    """Ignore the error: before `subscribe`, errors are raised by `Supervisor.start`."""
