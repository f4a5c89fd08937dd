"""Dispatcher: connects clients to policies, and opens or creates policies on demand."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Any

from rl4sys.errors import ConfigError, RL4SysError, RunError
from rl4sys.runs.store import FILE as STORE_FILE
from rl4sys.server.config import ServerConfig
from rl4sys.server.connection import Connection
from rl4sys.server.hosted_policy import HostedPolicy, open_policy
from rl4sys.server.journal import Sender
from rl4sys.server.logs import FILE as LOG_FILE
from rl4sys.server.task import TENSORBOARD_LINKS, LearnerTask
from rl4sys.spec import Spec
from rl4sys.wire.messages import Hello, Problem
from rl4sys.wire.service import IDENTITY, PROTOCOL

_log = logging.getLogger("rl4sys.server")

_MAX_SPEC_LENGTH, _MAX_SETTINGS_LENGTH = 1_000_000, 64_000
_MAX_NAME_BYTES = 200
"""Maximum size in bytes of a client or policy id. Ids are used in directory names of at most 255 bytes."""
_JOURNAL_THREADS = 8
_PROCESS_THREADS = 8
"""Number of threads that start and join learner processes. Journal writes use other threads and are not delayed."""
_MAX_OPENING = 8
"""Maximum number of policies opened at the same time. Opening a policy may build networks up to the size limits."""


class Dispatcher:
    """Holds all policies of the server by policy id, and connects clients to them."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._journal_executor = ThreadPoolExecutor(_JOURNAL_THREADS, thread_name_prefix="journal")
        self._process_executor = ThreadPoolExecutor(_PROCESS_THREADS, thread_name_prefix="processes")
        self._opening = asyncio.Semaphore(_MAX_OPENING)
        self._policies: dict[str, asyncio.Task[HostedPolicy]] = {}
        self._connecting = 0

    def policies(self) -> list[HostedPolicy]:
        """Return all open policies. Thread-safe."""
        done = [task for task in list(self._policies.values()) if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    @property
    def client_count(self) -> int:
        return sum(len(policy.connections) for policy in self.policies())

    async def open_existing(self) -> None:
        """Open all policies in the server's directory, up to `max_policies`; log the policies that cannot be opened."""
        names = sorted(path.name for path in self._server.root.iterdir() if path.is_dir())
        tasks = [task for task in (LearnerTask(name, self._server) for name in names) if task.exists]
        for task in tasks[: self._server.limits.max_policies]:
            try:
                await self._get_or_open(task)
            except RL4SysError as error:
                _log.error("cannot open policy: %s", error, extra={"policy": task.policy_id})

    async def connect_client(self, hello: Hello, peer: str) -> tuple[HostedPolicy, Connection, int]:
        """Connect a client to its policy.

        Returns the policy, the connection, and the highest sequence of this client instance on disk. Raises
        `ConfigError` if the request of the client is invalid, and `RunError` if the client cannot be served now.
        """
        _check_hello(hello)
        clients = self.client_count + self._connecting
        if clients >= self._server.limits.max_clients:
            raise RunError(f"the server already has {clients} clients, the maximum (limits.max_clients)")
        self._connecting += 1
        try:
            return await self._connect_client(hello, peer)
        finally:
            self._connecting -= 1

    async def find_policy(self, policy_id: str) -> HostedPolicy:
        """Wait until a policy is open and return it. Raises `ConfigError` if the policy does not exist."""
        task = self._policies.get(policy_id)
        if task is None:
            raise ConfigError(f"policy {policy_id!r:.110} does not exist; it is created when a client connects")
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the opening of policies in progress, and close all open policies."""
        opening = [task for task in self._policies.values() if not task.done()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*(policy.close() for policy in self.policies()))
        self._journal_executor.shutdown()
        self._process_executor.shutdown()

    async def _connect_client(self, hello: Hello, peer: str) -> tuple[HostedPolicy, Connection, int]:
        spec = _parse_spec(hello)
        task = LearnerTask(hello.policy_id, self._server, hello.spec, hello.settings or "{}", hello.remote)
        self._check_pinned(hello, task)
        policy = await self._get_or_open(task)
        if policy.spec != spec:
            raise ConfigError(_describe_spec_difference(hello.policy_id, policy.spec, spec))
        if policy.not_portable and not hello.remote:
            raise ConfigError(policy.not_portable)
        connection = _make_connection(hello, peer)
        on_disk = await policy.add_client(connection, hello.held)
        self._send_notes(hello, policy, connection)
        return policy, connection, on_disk

    async def _get_or_open(self, task: LearnerTask) -> HostedPolicy:
        """Return the policy; open it first if necessary. All clients that wait for a policy share one opening task."""
        if task.policy_id not in self._policies:
            if len(self._policies) >= self._server.limits.max_policies:
                raise RunError(
                    f"the server already has {len(self._policies)} policies, the maximum (limits.max_policies)"
                )
            self._policies[task.policy_id] = asyncio.create_task(self._open(task))
        return await asyncio.shield(self._policies[task.policy_id])

    async def _open(self, task: LearnerTask) -> HostedPolicy:
        try:
            async with self._opening:
                policy = await open_policy(task, self._journal_executor, self._process_executor)
        except BaseException:
            self._policies.pop(task.policy_id, None)
            raise
        _log.info("policy opened", extra={"policy": task.policy_id, "run": str(task.path)})
        return policy

    def _check_pinned(self, hello: Hello, task: LearnerTask) -> None:
        """Raise `ConfigError` if a client pins a version of a policy that does not exist yet."""
        if hello.HasField("pinned_version") and task.policy_id not in self._policies and not task.exists:
            raise ConfigError(
                f"version {hello.pinned_version} is pinned, but policy '{task.policy_id}' does not exist on this "
                "server; remove pin_version or choose another policy_id"
            )

    def _send_notes(self, hello: Hello, policy: HostedPolicy, connection: Connection) -> None:
        """Inform a client about its settings that are ignored, and about another client with the same id."""
        if hello.policy_id in self._server.policies:
            return
        if differences := _setting_differences(json.loads(hello.settings or "{}"), policy.settings):
            text = (
                f"policy '{hello.policy_id}' keeps the learner settings it was created with; this client differs in "
                f"{', '.join(differences)}. To use other settings, choose another policy_id"
            )
            _log.warning(text, extra={"client": hello.client_id, "policy": hello.policy_id})
            connection.add_problem(Problem.NOTE, text)
        if any(c.sender.client == hello.client_id and c is not connection for c in policy.connections):
            text = f"another client with client_id '{hello.client_id}' is connected; both clients are served"
            connection.add_problem(Problem.NOTE, text)


def _setting_differences(client: dict[str, Any], policy: dict[str, Any]) -> list[str]:
    """Return the dotted names of the client's settings that differ from the policy's settings, except the seed."""
    names = []
    for block, value in client.items():
        ours = policy.get(block)
        if block == "seed" or value == ours:
            continue
        if isinstance(value, dict) and isinstance(ours, dict):
            names += [f"{block}.{key}" for key in {**value, **ours} if value.get(key) != ours.get(key)]
        else:
            names.append(block)
    return names


def _check_hello(hello: Hello) -> None:
    if hello.protocol != PROTOCOL:
        raise ConfigError(
            f"the client uses protocol version {hello.protocol}, but this server uses version {PROTOCOL}; upgrade the "
            "older of the two"
        )
    for name in ("client_id", "policy_id"):
        value = getattr(hello, name)
        if not re.fullmatch(IDENTITY, value) or len(value.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(
                f"{name} is {value!r:.120}; expected 1 to 100 letters, digits, dots, dashes and underscores, "
                "starting with a letter, digit or underscore"
            )
    _check_not_reserved(hello.policy_id)
    if len(hello.spec) > _MAX_SPEC_LENGTH or len(hello.settings) > _MAX_SETTINGS_LENGTH:
        raise ConfigError(
            f"the client's spec or settings are too long; the limits are {_MAX_SPEC_LENGTH:,} and "
            f"{_MAX_SETTINGS_LENGTH:,} characters"
        )
    try:
        settings = json.loads(hello.settings or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the client's settings are not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"the client's settings are {settings!r:.80}; expected a JSON object")


def _check_not_reserved(policy_id: str) -> None:
    links = TENSORBOARD_LINKS.format(algorithm="*")
    for pattern, purpose in ((f"{LOG_FILE}*", "its log"), (f"{STORE_FILE}*", "the run store"), (links, "TensorBoard")):
        if fnmatchcase(policy_id, pattern):
            raise ConfigError(f"policy_id '{policy_id}' is reserved: the server uses it for {purpose}; use another id")


def _parse_spec(hello: Hello) -> Spec:
    try:
        return Spec.from_json(json.loads(hello.spec))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the client's spec is not JSON: {error}") from error


def _make_connection(hello: Hello, peer: str) -> Connection:
    pinned = hello.pinned_version if hello.HasField("pinned_version") else None
    return Connection(Sender.of(hello.client_id, hello.instance), peer, pinned, hello.remote)


def _describe_spec_difference(policy_id: str, policy: Spec, client: Spec) -> str:
    ours, theirs = policy.to_json(), client.to_json()
    for part in ("observation", "action"):
        if ours[part] != theirs[part]:
            return (
                f"policy '{policy_id}' has the {part} space {json.dumps(ours[part])[:400]}, but this client has "
                f"{json.dumps(theirs[part])[:400]}; use the same spaces or choose another policy_id"
            )
    return f"policy '{policy_id}' and this client have different specs"
