"""Routes clients to policies: opens a session where there is none, and refuses what cannot be served."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rl4sys.errors import ConfigError, RL4SysError, RunError
from rl4sys.experiment.store import FILE as STORE_FILE
from rl4sys.server.config import ServerConfig
from rl4sys.server.connection import Connection
from rl4sys.server.journal import Sender
from rl4sys.server.logs import FILE as LOG_FILE
from rl4sys.server.session import Session, open_session
from rl4sys.server.task import Task
from rl4sys.spec import Spec
from rl4sys.wire.messages import Hello, Problem
from rl4sys.wire.service import IDENTITY, PROTOCOL

_log = logging.getLogger("rl4sys.server")

_MOST_SPEC_BYTES, _MOST_SETTINGS_BYTES = 1_000_000, 64_000
_MOST_NAME_BYTES = 200
"""A directory's name can have 255, and letters more than one each."""
_WRITING_THREADS = 8
_STARTING_THREADS = 8
"""Apart from those that write, so that nobody's acknowledgement waits until others' learners have started."""
_OPENED_AT_ONCE = 8
"""Policies; each has a process that may build networks as large as the limits allow, if only to refuse them."""


class Dispatcher:
    """All sessions of a server, by policy id."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._executor = ThreadPoolExecutor(_WRITING_THREADS, thread_name_prefix="journal")
        self._workers_executor = ThreadPoolExecutor(_STARTING_THREADS, thread_name_prefix="workers")
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._sessions: dict[str, asyncio.Task[Session]] = {}
        self._joining = 0

    def sessions(self) -> list[Session]:
        """Those that are open."""
        done = [task for task in list(self._sessions.values()) if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    @property
    def clients(self) -> int:
        return sum(len(session.connections) for session in self.sessions())

    async def open_existing(self) -> None:
        """Go on with every policy that is in the server's directory."""
        found = sorted(path.name for path in self._server.root.iterdir() if path.is_dir())
        tasks = [task for task in (Task(name, self._server) for name in found) if task.exists]
        for task in tasks[: self._server.limits.max_policies]:
            try:
                await self._session(task)
            except RL4SysError as problem:
                _log.error("cannot go on with a policy: %s", problem, extra={"policy": task.policy_id})

    async def join(self, hello: Hello, peer: str) -> tuple[Session, Connection, int]:
        """The session a client belongs to, its place there, and what of its present life is on disk."""
        _check_hello(hello)
        if self.clients + self._joining >= self._server.limits.max_clients:
            raise RunError(f"this server has {self.clients + self._joining} clients already, which is its limit")
        self._joining += 1
        try:
            return await self._join(hello, peer)
        finally:
            self._joining -= 1

    async def find(self, policy_id: str) -> Session:
        """An existing policy."""
        task = self._sessions.get(policy_id)
        if task is None:
            raise ConfigError(f"there is no policy {policy_id!r:.110} here; a client makes one by connecting")
        return await asyncio.shield(task)

    async def close(self) -> None:
        opening = [task for task in self._sessions.values() if not task.done()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in self.sessions()))
        self._executor.shutdown()
        self._workers_executor.shutdown()

    async def _join(self, hello: Hello, peer: str) -> tuple[Session, Connection, int]:
        spec = _spec_of(hello)
        task = Task(hello.policy_id, self._server, hello.spec, hello.settings or "{}", hello.remote)
        self._check_pinned(hello, task)
        session = await self._session(task)
        if session.spec != spec:
            raise ConfigError(_difference(hello.policy_id, session.spec, spec))
        if session.not_portable and not hello.remote:
            raise ConfigError(session.not_portable)
        connection = _connection(hello, peer)
        on_disk = await session.join(connection, hello.held)
        self._tell_differences(hello, session, connection)
        return session, connection, on_disk

    async def _session(self, task: Task) -> Session:
        """The policy's session; clients that come while it is being opened wait for the same one."""
        if task.policy_id not in self._sessions:
            if len(self._sessions) >= self._server.limits.max_policies:
                raise RunError(f"this server has {len(self._sessions)} policies already, which is its limit")
            self._sessions[task.policy_id] = asyncio.create_task(self._open(task))
        return await asyncio.shield(self._sessions[task.policy_id])

    async def _open(self, task: Task) -> Session:
        try:
            async with self._opening:
                session = await open_session(task, self._executor, self._workers_executor)
        except BaseException:
            self._sessions.pop(task.policy_id, None)
            raise
        _log.info("policy open", extra={"policy": task.policy_id, "run": str(task.path)})
        return session

    def _check_pinned(self, hello: Hello, task: Task) -> None:
        """What cannot be had of a policy that is not there is no reason to make one."""
        if hello.HasField("pinned_version") and task.policy_id not in self._sessions and not task.exists:
            raise ConfigError(f"there is no policy {task.policy_id} here, so no version {hello.pinned_version} of it")

    def _tell_differences(self, hello: Hello, session: Session, connection: Connection) -> None:
        if hello.policy_id in self._server.policies:
            return
        if differing := _differing(json.loads(hello.settings or "{}"), session.settings):
            text = (
                f"{hello.policy_id} goes on with the learner settings it was made with; yours differ in "
                f"{', '.join(differing)}. To use yours choose another policy_id"
            )
            _log.warning(text, extra={"client": hello.client_id, "policy": hello.policy_id})
            connection.tell(Problem.NOTE, text)
        if any(c.sender.client == hello.client_id and c is not connection for c in session.connections):
            connection.tell(Problem.NOTE, f"another client is connected as {hello.client_id}; both are served")


def _differing(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Settings by dotted name that a client gives and a policy has otherwise; seeds are each client's own."""
    found = []
    for block, value in theirs.items():
        if block == "seed" or value == ours.get(block):
            continue
        mine = ours.get(block)
        if isinstance(value, dict) and isinstance(mine, dict):
            found += [f"{block}.{key}" for key in {**value, **mine} if value.get(key) != mine.get(key)]
        else:
            found.append(block)
    return found


def _check_hello(hello: Hello) -> None:
    if hello.protocol != PROTOCOL:
        raise ConfigError(f"the client speaks protocol {hello.protocol}, this server {PROTOCOL}; upgrade the older one")
    for name in ("client_id", "policy_id"):
        given = getattr(hello, name)
        if not re.fullmatch(IDENTITY, given) or len(given.encode()) > _MOST_NAME_BYTES:
            raise ConfigError(
                f"{name} is {given!r:.120}; it should be 1 to 100 letters, digits, dots, dashes and "
                "underscores, the first a letter, digit or underscore"
            )
    _check_not_ours(hello.policy_id)
    if len(hello.spec) > _MOST_SPEC_BYTES or len(hello.settings) > _MOST_SETTINGS_BYTES:
        raise ConfigError("the client's spec or settings are far too long")
    try:
        settings = json.loads(hello.settings or "{}")
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"the client's settings are not JSON: {problem}") from problem
    if not isinstance(settings, dict):
        raise ConfigError(f"the client's settings are {settings!r:.80}; they should be a block")


def _check_not_ours(policy_id: str) -> None:
    for file, what in ((LOG_FILE, "its log"), (STORE_FILE, "the index of its runs")):
        if policy_id.startswith(file):
            raise ConfigError(f"policy_id is {policy_id}, which is where the server keeps {what}; choose another")


def _spec_of(hello: Hello) -> Spec:
    try:
        return Spec.from_json(json.loads(hello.spec))
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"the client's spec is not JSON: {problem}") from problem


def _connection(hello: Hello, peer: str) -> Connection:
    pinned = hello.pinned_version if hello.HasField("pinned_version") else None
    return Connection(Sender.of(hello.client_id, hello.instance), peer, pinned, hello.remote)


def _difference(policy_id: str, ours: Spec, theirs: Spec) -> str:
    mine, yours = ours.to_json(), theirs.to_json()
    for part in ("observation", "action"):
        if mine[part] != yours[part]:
            return (
                f"the policy {policy_id} has the {part} {json.dumps(mine[part])[:400]}, and this client "
                f"{json.dumps(yours[part])[:400]}; they must be the same, or choose another policy_id"
            )
    return f"the policy {policy_id} has another spec than this client"
