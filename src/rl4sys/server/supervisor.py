"""Keeps one policy's worker running: starts it, hears it, starts it again when it dies, stops it."""

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
from rl4sys.server.frames import Frame, encode, read_frame
from rl4sys.server.processes import start_worker
from rl4sys.server.task import Task

_log = logging.getLogger("rl4sys.server")

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_TRIES = 3
_STOP_SECONDS = 20.0


class _End(NamedTuple):
    """How a worker ended."""

    message: str
    passing: bool
    """Worth trying again for as long as it takes."""


class Supervisor:
    """What the worker says is kept until somebody listens."""

    def __init__(self, task: Task, executor: Executor) -> None:
        self._task, self._executor = task, executor
        self._unheard: list[Frame] = []
        self._hear: Callable[[Frame], None] = self._unheard.append
        self._trouble: Callable[[str], None] = _nobody_hears
        self.state = "starting"
        """starting, learning or failed"""
        self._row = 0
        self._journal_row = 0
        self._awake = False
        self._stopping = False
        self._process: BaseProcess | None = None
        self._line: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[Frame]] = {}
        self._numbers = count()
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> dict[str, Any]:
        """What the worker says of the policy once it has it; raises if it can neither make nor open it."""
        self._supervising = asyncio.create_task(self._supervise(), name=f"supervise {self._task.policy_id}")
        return await self._ready

    def listen(self, hear: Callable[[Frame], None], trouble: Callable[[str], None]) -> None:
        """Have ``hear`` called with every message about learning, and ``trouble`` when the worker dies."""
        self._hear, self._trouble = hear, trouble
        for frame in self._unheard:
            hear(frame)
        self._unheard.clear()

    def tell_of(self, row: int) -> None:
        """The journal now goes up to ``row``."""
        self._journal_row = row
        if not self._awake and self._line is not None and self._row < row:
            self._awake = True
            self._line.write(encode(Frame("wake", {})))

    async def ask(self, question: bytes) -> Frame:
        """How the worker answers, between two trajectories that it learns from; `RunError` where it cannot now."""
        if self._line is None or len(self._asked) >= self._task.server.limits.max_clients:
            raise RunError(f"the learner of {self._task.policy_id} cannot decide now")
        number = next(self._numbers)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._line.write(encode(Frame("act", {"number": number}, question)))
        try:
            return await answer
        finally:
            del self._asked[number]

    async def stop(self) -> None:
        """Let the worker save and end."""
        self._stopping = True
        if self._line is not None:
            with suppress(ConnectionError):
                self._line.write(encode(Frame("stop", {})))
                await self._line.drain()
            await asyncio.wait([self._supervising], timeout=_STOP_SECONDS)
        if self._process is not None and self._process.is_alive():
            # In the middle of a long update. It learns the same again from its last checkpoint and the journal.
            self._process.kill()
            await self._in_thread(self._process.join)
        self._supervising.cancel()
        await asyncio.gather(self._supervising, return_exceptions=True)

    async def _supervise(self) -> None:
        """One that fails again and again without getting anywhere is given up."""
        tries, row, retry_seconds = 0, -1, _FIRST_RETRY_SECONDS
        while not self._stopping:
            end = await self._run_once()
            if self._stopping:
                return
            if not self._ready.done():
                self._ready.set_exception(RunError(end.message) if end.passing else ConfigError(end.message))
                return
            progressed = self._row > row
            row, tries = self._row, 1 if progressed else tries + 1
            self._trouble(f"learning broke off: {end.message}")
            if tries >= _TRIES and not end.passing:
                self.state = "failed"
                return
            retry_seconds = _FIRST_RETRY_SECONDS if progressed else min(2 * retry_seconds, _LONGEST_RETRY_SECONDS)
            await asyncio.sleep(retry_seconds)

    async def _run_once(self) -> _End:
        """The life of one worker."""
        try:
            self._process, ours = await self._in_thread(start_worker, self._task)
            reader, self._line = await asyncio.open_unix_connection(sock=ours)
        except (OSError, EOFError) as problem:
            return _End(f"its process could not be started: {problem!r}", passing=True)
        # It looks at the journal before it waits for the first time.
        self._awake = True
        end = _End("its process died", passing=False)
        try:
            while True:
                frame = await read_frame(reader)
                if frame.kind == "failed":
                    end = self._ended(frame)
                else:
                    self._take(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            return end
        except Exception as problem:
            # An edge: whatever its words led to here, it is the policy's trouble, and it learns on from its checkpoint.
            _log.exception("what a learner said led to a failure", extra={"policy": self._task.policy_id})
            return _End(f"the server failed at what it said: {problem!r}", passing=False)
        finally:
            self._line.close()
            self._line = None
            self._answer_nobody()
            await self._in_thread(self._process.join)

    def _ended(self, frame: Frame) -> _End:
        if "traceback" in frame.fields:
            _log.error("a learner failed\n%s", frame.fields["traceback"], extra={"policy": self._task.policy_id})
        return _End(frame.fields["message"], frame.fields["passing"])

    def _take(self, frame: Frame) -> None:
        if frame.kind == "ready":
            self.state = "learning"
            if not self._ready.done():
                self._ready.set_result(frame.fields)
        elif frame.kind == "idle":
            self._awake = False
            self.tell_of(self._journal_row)
        elif frame.kind == "acted":
            answer = self._asked.get(frame.fields["number"])
            if answer is not None and not answer.done():
                answer.set_result(frame)
        else:
            self._row = frame.fields.get("row", self._row) if frame.kind == "progress" else self._row
            self._hear(frame)

    def _answer_nobody(self) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(RunError(f"the learner of {self._task.policy_id} is gone, and starts again"))

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


def _nobody_hears(message: str) -> None:
    """Before anybody listens, what goes wrong is told by `Supervisor.start`."""
