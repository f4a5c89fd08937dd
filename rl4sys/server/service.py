"""gRPC service of the server: reads and writes messages, checks tokens, and calls the dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import methodcaller
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message

from rl4sys.errors import RL4SysError, RunError, SpecError
from rl4sys.policy.draws import Draws
from rl4sys.server.access import Access
from rl4sys.server.connection import Connection
from rl4sys.server.dispatcher import Dispatcher
from rl4sys.server.hosted_policy import HostedPolicy
from rl4sys.server.sanitize import encodable
from rl4sys.spec import MASK, Array, Spec
from rl4sys.trajectory import OBSERVATION
from rl4sys.wire.columns import decode_column
from rl4sys.wire.messages import (
    ActReply,
    ActRequest,
    ClientMessage,
    Hello,
    Problem,
    Report,
    ServerMessage,
    StatusReply,
    StatusRequest,
    Welcome,
)
from rl4sys.wire.service import MAX_MESSAGE_BYTES, SERVICE
from rl4sys.wire.unpack import unpack

_log = logging.getLogger("rl4sys.server")

_HELLO_SECONDS = 10.0
_MAX_HELLO_BYTES = 5 * 2**20
"""Maximum size in bytes of the Hello message; the dispatcher has lower limits for its spec and settings."""
_MAX_STATUS_BYTES = 1000
"""Maximum length in bytes of the text in a gRPC status, which is sent in a header."""
_DECISION_SECONDS = 30.0
_HELLO_MISSING = "the first message must be Hello"
_TOKEN_INVALID = "missing or invalid token"  # noqa: S105
_Context = grpc.aio.ServicerContext[Any, Any]
_Kind = TypeVar("_Kind", bound=Message)


class Service:
    """RPC methods of ``rl4sys.v1.Training``. Messages arrive as bytes and are parsed here, for clear error messages."""

    def __init__(
        self, dispatcher: Dispatcher, access: Access, status: Callable[[], Awaitable[StatusReply]], release: str
    ) -> None:
        self._dispatcher, self._access, self._status, self._release = dispatcher, access, status, release

    def handler(self) -> grpc.GenericRpcHandler:
        serialize = methodcaller("SerializeToString")
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Connect": grpc.stream_stream_rpc_method_handler(_hide_unexpected(self._connect), None, serialize),
            "Act": grpc.unary_unary_rpc_method_handler(_hide_unexpected(self._act), None, serialize),
            "Status": grpc.unary_unary_rpc_method_handler(_hide_unexpected(self._report_status), None, serialize),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _connect(self, messages: AsyncIterator[bytes], context: _Context) -> None:
        """Serve the stream of one client.

        Messages are read from the context, because the iterator would keep the last message in RAM while
        the client is silent.
        """
        policy, connection, on_disk = await self._admit(context)
        names = {"client": connection.sender.client, "policy": policy.policy_id}
        _log.info("client connected", extra={**names, "peer": connection.peer})
        try:
            await context.write(ServerMessage(welcome=self._welcome(policy, on_disk)))
            await self._exchange_messages(context, policy, connection)
        finally:
            policy.remove_client(connection)
            _log.info("client disconnected", extra=names)

    async def _admit(self, context: _Context) -> tuple[HostedPolicy, Connection, int]:
        """Read the Hello message and connect the client. The message may be large and is freed on return."""
        hello = await self._read_hello(context)
        await self._authorize(context, hello.client_id, hello.policy_id)
        try:
            return await self._dispatcher.connect_client(hello, context.peer())
        except RL4SysError as error:
            await _refuse(context, error)
            raise

    async def _exchange_messages(self, context: _Context, policy: HostedPolicy, connection: Connection) -> None:
        """Receive and send messages concurrently until the client or the server ends the stream."""
        tasks = [
            asyncio.create_task(_receive_messages(context, policy, connection)),
            asyncio.create_task(_send_messages(context, policy, connection)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_hello(self, context: _Context) -> Hello:
        try:
            content = await asyncio.wait_for(_read(context), _HELLO_SECONDS)
        except TimeoutError:
            content = None
        if content is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _HELLO_MISSING)
        if len(content) > _MAX_HELLO_BYTES:
            text = f"the first message has {len(content)} bytes; a Hello message has at most {_MAX_HELLO_BYTES}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        message = await _parse(ClientMessage, content, context)
        if message.WhichOneof("kind") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _HELLO_MISSING)
        return message.hello

    async def _authorize(self, context: _Context, client_id: str, policy_id: str) -> None:
        token = _token(context)
        if not self._access.is_known(token):
            _log.warning(_TOKEN_INVALID, extra={"client": client_id[:100], "peer": context.peer()})
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, _TOKEN_INVALID)
        if not self._access.allows(token, client_id, policy_id):
            text = f"this token does not allow client {client_id!r:.110} to use policy {policy_id!r:.110}"
            _log.warning(text, extra={"peer": context.peer()})
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

    def _welcome(self, policy: HostedPolicy, on_disk: int) -> Welcome:
        welcome = Welcome(
            lineage=policy.lineage,
            acknowledged=on_disk,
            max_message_bytes=MAX_MESSAGE_BYTES,
            max_trajectory_steps=policy.intake.max_trajectory_steps,
            release=self._release,
        )
        if policy.max_staleness is not None:
            welcome.max_staleness = policy.max_staleness
        return welcome

    async def _act(self, content: bytes, context: _Context) -> ActReply:
        request = await _parse(ActRequest, content, context)
        await self._authorize(context, request.client_id, request.policy_id)
        try:
            policy = await self._dispatcher.find_policy(request.policy_id)
            observation = _read_observation(request, policy.spec)
            draws = Draws(request.draws_key, request.draws_counter)
            reply = await asyncio.wait_for(policy.decide(observation, draws), _DECISION_SECONDS)
        except RL4SysError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, encodable(str(error), _MAX_STATUS_BYTES))
        except TimeoutError:
            text = f"policy '{request.policy_id}' selected no action within {_DECISION_SECONDS:g} seconds; retry later"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        return reply

    async def _report_status(self, content: bytes, context: _Context) -> StatusReply:
        await _parse(StatusRequest, content, context)
        if not self._access.is_known(_token(context)):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, _TOKEN_INVALID)
        return await self._status()


def _hide_unexpected(method: Callable[[Any, _Context], Awaitable[Any]]) -> Callable[[Any, _Context], Awaitable[Any]]:
    """Wrap an RPC method: log unexpected exceptions, but send clients only a generic error message."""

    async def wrapped(request: Any, context: _Context) -> Any:
        try:
            return await method(request, context)
        except grpc.aio.BaseError:
            raise
        except Exception:
            _log.exception("unexpected error in an RPC call", extra={"peer": context.peer()})
            await context.abort(grpc.StatusCode.INTERNAL, "internal error; see the server's log")

    return wrapped


async def _receive_messages(context: _Context, policy: HostedPolicy, connection: Connection) -> None:
    while (content := await _read(context)) is not None:
        handling = _handle_message(content, context, policy, connection)
        # The message is freed now, because it may be large and the next message may arrive much later.
        del content
        await handling


async def _handle_message(content: bytes, context: _Context, policy: HostedPolicy, connection: Connection) -> None:
    message = await _parse(ClientMessage, content, context)
    kind = message.WhichOneof("kind")
    if kind == "trajectories":
        await policy.intake.receive(connection, list(message.trajectories.trajectory))
    elif kind == "report":
        connection.report = _copy_known_fields(message.report)
    else:
        text = f"expected trajectories or a report after Hello, got {kind}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)


async def _read(context: _Context) -> bytes | None:
    """Return the client's next message, or None after the last message."""
    content: bytes | Any = await context.read()
    return content if isinstance(content, bytes) else None


async def _send_messages(context: _Context, policy: HostedPolicy, connection: Connection) -> None:
    while True:
        messages, model = await connection.next_messages()
        for message in messages:
            await context.write(message)
        if model is not None:
            await context.write(ServerMessage(snapshot=policy.encode_model(model, connection)))


async def _refuse(context: _Context, error: RL4SysError) -> None:
    """Refuse a client: send the reason and end the stream.

    A `RunError` is transient (SERVER); other errors are permanent (REFUSED).
    """
    text = encodable(str(error))
    _log.warning("client refused: %s", text, extra={"peer": context.peer()})
    kind = Problem.SERVER if isinstance(error, RunError) else Problem.REFUSED
    await context.write(ServerMessage(problem=Problem(kind=kind, message=text)))
    code = grpc.StatusCode.UNAVAILABLE if isinstance(error, RunError) else grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(code, encodable(text, _MAX_STATUS_BYTES))


async def _parse(kind: type[_Kind], content: bytes, context: _Context) -> _Kind:
    try:
        return unpack(kind, content)
    except SpecError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise


def _copy_known_fields(report: Report) -> Report:
    """Copy a report without its unknown fields, which have no size limit and would otherwise be stored."""
    report.DiscardUnknownFields()
    copy = Report()
    copy.CopyFrom(report)
    return copy


def _token(context: _Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return None


def _read_observation(request: ActRequest, spec: Spec) -> dict[str, Array]:
    """Decode and check the observation of a request. Each named array must have one row."""
    columns = {column.name: decode_column(column) for column in request.observation}
    expected = {f"{OBSERVATION}{name}": box for name, box in spec.observation.items()}
    if set(columns) != set(expected):
        raise SpecError(f"the observation has the columns {sorted(columns)}; expected {sorted(expected)}")
    for name, box in expected.items():
        column, shape = columns[name], (1, *box.shape)
        if column.shape != shape or column.dtype != np.dtype(box.dtype):
            raise SpecError(
                f"column '{name}' is {column.dtype} of shape {column.shape}; expected {box.dtype} of shape {shape}"
            )
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise SpecError(f"column '{name}' contains NaN or infinity")
    if OBSERVATION + MASK in columns and not columns[OBSERVATION + MASK].any():
        raise SpecError("the action mask allows no action")
    return {name.removeprefix(OBSERVATION): column for name, column in columns.items()}
