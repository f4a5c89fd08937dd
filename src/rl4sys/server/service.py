"""The gRPC edge: reads and writes messages, checks tokens, and leaves every decision to the dispatcher."""

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
from rl4sys.server.session import Session
from rl4sys.server.words import fit
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
_MOST_HELLO_BYTES = 5 * 2**20
"""Its spec and settings have narrower limits of their own, in characters."""
_MOST_STATUS_BYTES = 1000
"""Of the text of a status, which travels in a header."""
_DECISION_SECONDS = 30.0
_Context = grpc.aio.ServicerContext[Any, Any]
_Kind = TypeVar("_Kind", bound=Message)


class Service:
    """Answers the three methods of ``rl4sys.v1.Training``. Messages come as bytes, so that we word what is wrong."""

    def __init__(
        self, dispatcher: Dispatcher, access: Access, status: Callable[[], Awaitable[StatusReply]], release: str
    ) -> None:
        self._dispatcher, self._access, self._status, self._release = dispatcher, access, status, release

    def handler(self) -> grpc.GenericRpcHandler:
        reply = methodcaller("SerializeToString")
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Connect": grpc.stream_stream_rpc_method_handler(_in_words(self._connect), None, reply),
            "Act": grpc.unary_unary_rpc_method_handler(_in_words(self._act), None, reply),
            "Status": grpc.unary_unary_rpc_method_handler(_in_words(self._report), None, reply),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _connect(self, messages: AsyncIterator[bytes], context: _Context) -> None:
        """Messages are read from the context: an iterator keeps the last one for as long as a client is silent."""
        session, connection, on_disk = await self._admit(context)
        names = {"client": connection.sender.client, "policy": session.policy_id}
        _log.info("client joins", extra={**names, "peer": connection.peer})
        try:
            await context.write(ServerMessage(welcome=self._welcome(session, on_disk)))
            await self._converse(context, session, connection)
        finally:
            session.leave(connection)
            _log.info("client leaves", extra=names)

    async def _admit(self, context: _Context) -> tuple[Session, Connection, int]:
        """A place for the client; what it said to get it is large, and forgotten when this returns."""
        hello = await self._hello(context)
        await self._authorize(context, hello.client_id, hello.policy_id)
        try:
            return await self._dispatcher.join(hello, context.peer())
        except RL4SysError as problem:
            await _refuse(context, problem)
            raise

    async def _converse(self, context: _Context, session: Session, connection: Connection) -> None:
        """Read and write at once, until either side ends."""
        sides = [
            asyncio.create_task(_listen(context, session, connection)),
            asyncio.create_task(_speak(context, session, connection)),
        ]
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            for side in done:
                side.result()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _hello(self, context: _Context) -> Hello:
        try:
            content = await asyncio.wait_for(_read(context), _HELLO_SECONDS)
        except TimeoutError:
            content = None
        if content is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a client says Hello first")
        if len(content) > _MOST_HELLO_BYTES:
            text = f"a first message of {len(content)} bytes; a Hello takes at most {_MOST_HELLO_BYTES}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        message = await _parse(ClientMessage, content, context)
        if message.WhichOneof("kind") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a client says Hello first")
        return message.hello

    async def _authorize(self, context: _Context, client_id: str, policy_id: str) -> None:
        token = _token(context)
        if not self._access.known(token):
            _log.warning("unknown token", extra={"client": client_id[:100], "peer": context.peer()})
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the server wants a token, and knows no such one")
        if not self._access.allows(token, client_id, policy_id):
            text = f"this token does not allow client {client_id!r:.110} to use policy {policy_id!r:.110}"
            _log.warning(text, extra={"peer": context.peer()})
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

    def _welcome(self, session: Session, on_disk: int) -> Welcome:
        welcome = Welcome(
            lineage=session.lineage,
            acknowledged=on_disk,
            max_message_bytes=MAX_MESSAGE_BYTES,
            max_trajectory_steps=session.intake.max_trajectory_steps,
            release=self._release,
        )
        if session.max_staleness is not None:
            welcome.max_staleness = session.max_staleness
        return welcome

    async def _act(self, content: bytes, context: _Context) -> ActReply:
        request = await _parse(ActRequest, content, context)
        await self._authorize(context, request.client_id, request.policy_id)
        try:
            session = await self._dispatcher.find(request.policy_id)
            observation = _observation(request, session.spec)
            draws = Draws(request.draws_key, request.draws_counter)
            reply = await asyncio.wait_for(session.decide(observation, draws), _DECISION_SECONDS)
        except RL4SysError as problem:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fit(str(problem), _MOST_STATUS_BYTES))
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{request.policy_id} has no model yet, or is busy")
        return reply

    async def _report(self, content: bytes, context: _Context) -> StatusReply:
        await _parse(StatusRequest, content, context)
        if not self._access.known(_token(context)):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the server wants a token, and knows no such one")
        return await self._status()


def _in_words(answer: Callable[[Any, _Context], Awaitable[Any]]) -> Callable[[Any, _Context], Awaitable[Any]]:
    """The edge: what nobody foresaw is for the log, and a client is told no more than that."""

    async def answered(request: Any, context: _Context) -> Any:
        try:
            return await answer(request, context)
        except grpc.aio.BaseError:
            raise
        except Exception:
            _log.exception("a call failed", extra={"peer": context.peer()})
            await context.abort(grpc.StatusCode.INTERNAL, "the server failed at this, and its log says how")

    return answered


async def _listen(context: _Context, session: Session, connection: Connection) -> None:
    while (content := await _read(context)) is not None:
        hearing = _hear(content, context, session, connection)
        # It may be large, and the next may be long in coming.
        del content
        await hearing


async def _hear(content: bytes, context: _Context, session: Session, connection: Connection) -> None:
    message = await _parse(ClientMessage, content, context)
    kind = message.WhichOneof("kind")
    if kind == "trajectories":
        await session.intake.receive(connection, list(message.trajectories.trajectory))
    elif kind == "report":
        connection.report = _only_known(message.report)
    else:
        text = f"after Hello come trajectories and reports, not {kind}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)


async def _read(context: _Context) -> bytes | None:
    """The client's next message; None after the last."""
    content: bytes | Any = await context.read()
    return content if isinstance(content, bytes) else None


async def _speak(context: _Context, session: Session, connection: Connection) -> None:
    while True:
        messages, model = await connection.to_say()
        for message in messages:
            await context.write(message)
        if model is not None:
            await context.write(ServerMessage(snapshot=session.encode(model, connection)))


async def _refuse(context: _Context, problem: RL4SysError) -> None:
    """Say why, then end the stream. What another time may allow is told apart from what never will be."""
    text = fit(str(problem))
    _log.warning("a client is refused: %s", text, extra={"peer": context.peer()})
    kind = Problem.SERVER if isinstance(problem, RunError) else Problem.REFUSED
    await context.write(ServerMessage(problem=Problem(kind=kind, message=text)))
    code = grpc.StatusCode.UNAVAILABLE if isinstance(problem, RunError) else grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(code, fit(text, _MOST_STATUS_BYTES))


async def _parse(kind: type[_Kind], content: bytes, context: _Context) -> _Kind:
    try:
        return unpack(kind, content)
    except SpecError as problem:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(problem))
        raise


def _only_known(report: Report) -> Report:
    """A copy without fields that we do not know, which could be of any size and would be kept as they are."""
    report.DiscardUnknownFields()
    kept = Report()
    kept.CopyFrom(report)
    return kept


def _token(context: _Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return None


def _observation(request: ActRequest, spec: Spec) -> dict[str, Array]:
    """The single row of each observation that a request carries, checked."""
    columns = {column.name: decode_column(column) for column in request.observation}
    expected = {f"{OBSERVATION}{name}": box for name, box in spec.observation.items()}
    if set(columns) != set(expected):
        raise SpecError(f"an observation has the columns {sorted(columns)}; expected {sorted(expected)}")
    for name, box in expected.items():
        column, shape = columns[name], (1, *box.shape)
        if column.shape != shape or column.dtype != np.dtype(box.dtype):
            raise SpecError(f"{name} is {column.dtype} of shape {column.shape}; expected {box.dtype} of {shape}")
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise SpecError(f"{name} has a NaN or an infinity")
    if OBSERVATION + MASK in columns and not columns[OBSERVATION + MASK].any():
        raise SpecError("the mask allows no action at all")
    return {name.removeprefix(OBSERVATION): column for name, column in columns.items()}
