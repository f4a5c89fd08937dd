"""Training server with scripted behavior, over a real socket."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from rl4sys.policy.draws import Draws
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import STATE, Box, Discrete, MultiDiscrete, Spec, encoded_size
from rl4sys.trajectory import Trajectory
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.delta import digest, make_delta
from rl4sys.wire.messages import (
    Ack,
    ActReply,
    ActRequest,
    ClientMessage,
    Delta,
    Hello,
    Problem,
    Report,
    ServerMessage,
    Welcome,
)
from rl4sys.wire.messages import Snapshot as SnapshotMessage
from rl4sys.wire.service import CHANNEL_OPTIONS, SERVICE
from rl4sys.wire.trajectories import check_trajectory, decode_trajectory

TIMEOUT_SECONDS = 20.0


def make_snapshot(spec: Spec, version: int, *, bias: float | None = None) -> Snapshot:
    """Return a one-layer policy with weights that depend on the version; ``bias`` (for example NaN) fills the bias."""
    rng = np.random.default_rng(version)
    outputs = encoded_size(spec.action)
    weights = {
        "w": rng.normal(size=(outputs, input_size(spec))).astype(np.float32),
        "b": np.full(outputs, 0.0 if bias is None else bias, np.float32),
    }
    head = Operation("categorical")
    if isinstance(spec.action, MultiDiscrete):
        head, weights["choices"] = Operation("multi_categorical", ("choices",)), np.float32(spec.action.choices)
    if isinstance(spec.action, Box):
        head, weights["log_std"] = Operation("gaussian", ("log_std",)), np.zeros(outputs, np.float32)
    return Snapshot(version, spec, Program((Operation("linear", ("w", "b")),), head), weights)


class Session:
    """Server side of one Connect call."""

    def __init__(self, server: ScriptedServer, hello: Hello, metadata: dict[str, str]) -> None:
        self.server, self.hello, self.metadata = server, hello, metadata
        self.batches: list[int] = []
        self.trajectories: list[tuple[int, Trajectory]] = []
        self.reports: list[Report] = []
        self.over = False
        self._outgoing: queue.SimpleQueue[ServerMessage | None] = queue.SimpleQueue()

    @property
    def spec(self) -> Spec:
        import json

        return Spec.from_json(json.loads(self.hello.spec))

    def welcome(self, **fields: Any) -> None:
        fields = {"lineage": "first", "max_message_bytes": 2**25, "max_trajectory_steps": 10_000} | fields
        self.send(welcome=Welcome(**fields))

    def ack(self, sequence: int) -> None:
        self.send(ack=Ack(sequence=sequence))

    def problem(self, kind: Problem.Kind, message: str, sequence: int = 0) -> None:
        self.send(problem=Problem(kind=kind, message=message, sequence=sequence))

    def model(self, snapshot: Snapshot, *, base: Snapshot | None = None, wants: int = 2**40, **fields: Any) -> None:
        content = snapshot.to_bytes()
        message = SnapshotMessage(version=snapshot.version, digest=digest(content), wants=wants)
        if base is None:
            message.full = content
        else:
            changed = make_delta(base.to_bytes(), content)
            assert changed is not None
            message.delta.CopyFrom(Delta(base_version=base.version, compressed=changed))
        for name, value in fields.items():
            setattr(message, name, value)
        self.send(snapshot=message)

    def send(self, **kind: Any) -> None:
        self._outgoing.put(ServerMessage(**kind))

    def end(self) -> None:
        """Close the stream on the server side."""
        self._outgoing.put(None)

    def outgoing(self) -> Iterator[ServerMessage]:
        while (message := self._outgoing.get()) is not None:
            yield message

    @property
    def steps(self) -> int:
        return sum(len(trajectory) for _, trajectory in self.trajectories)

    @property
    def sequences(self) -> list[int]:
        return [sequence for sequence, _ in self.trajectories]


Script = Callable[[Session], None]


def serve_model(session: Session) -> None:
    """Send the Welcome message and a first model."""
    session.welcome()
    session.model(make_snapshot(session.spec, 1))


class ScriptedServer:
    """Server that calls ``script`` after Hello, and ``on_trajectories`` (default: acknowledge) after each batch."""

    def __init__(
        self,
        script: Script = serve_model,
        *,
        port: int = 0,
        token: str | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.script, self.token = script, token
        self.on_trajectories: Script = lambda session: session.ack(session.sequences[-1])
        self.policy: SnapshotPolicy | None = None
        self.acts: list[ActRequest] = []
        self.sessions: list[Session] = []
        self._changed = threading.Condition()
        self._executor = ThreadPoolExecutor(16)
        self._server = grpc.server(self._executor, options=[*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)])
        handlers = {
            "Connect": grpc.stream_stream_rpc_method_handler(
                self._connect, ClientMessage.FromString, ServerMessage.SerializeToString
            ),
            "Act": grpc.unary_unary_rpc_method_handler(self._act, ActRequest.FromString, ActReply.SerializeToString),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        place = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(place)
        else:
            self.port = self._server.add_secure_port(place, credentials)
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    def stop(self) -> None:
        for session in self.sessions:
            session.end()
        self._server.stop(0).wait(TIMEOUT_SECONDS)
        self._executor.shutdown()

    def wait_for(self, condition: Callable[[], bool], timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout_seconds), "timeout"

    def all_steps(self) -> int:
        return sum(session.steps for session in self.sessions)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _connect(self, messages: Iterator[ClientMessage], context: grpc.ServicerContext) -> Iterator[ServerMessage]:
        metadata = {str(name): str(value) for name, value in context.invocation_metadata()}
        if self.token is not None and metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")
        session = Session(self, next(messages).hello, metadata)
        self.sessions.append(session)
        self.script(session)
        self._notify()
        reader = threading.Thread(target=self._read, args=(session, messages), daemon=True)
        reader.start()
        yield from session.outgoing()

    def _read(self, session: Session, messages: Iterator[ClientMessage]) -> None:
        try:
            for message in messages:
                self._on_message(session, message)
        except grpc.RpcError:
            pass
        except Exception as problem:
            if "Exception iterating requests" not in repr(problem) and str(problem):
                raise
        session.over = True
        session.end()
        self._notify()

    def _on_message(self, session: Session, message: ClientMessage) -> None:
        if message.WhichOneof("kind") == "report":
            session.reports.append(message.report)
        else:
            session.batches.append(len(message.trajectories.trajectory))
            for content in message.trajectories.trajectory:
                trajectory, sequence = decode_trajectory(content)
                check_trajectory(trajectory, session.spec, 100_000)
                session.trajectories.append((sequence, trajectory))
            self.on_trajectories(session)
        self._notify()

    def _act(self, request: ActRequest, context: grpc.ServicerContext) -> ActReply:
        self.acts.append(request)
        if self.policy is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no model yet")
        observation = {column.name.removeprefix("obs."): decode_column(column) for column in request.observation}
        draws = Draws(request.draws_key, request.draws_counter)
        decision = self.policy.act(observation, {}, draws)
        return ActReply(
            action=encode_column("action", decision.action),
            log_prob=float(decision.log_prob[0]),
            version=self.policy.version,
            draws_counter=draws.counter,
            lineage="first",
        )


SPEC = Spec({STATE: Box((3,))}, Discrete(4))
"""Default spec of the clients in these tests."""
