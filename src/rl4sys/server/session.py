"""One policy on the server: the intake of its experience, its learner, its newest model, and its clients."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import Executor
from typing import Any

from rl4sys.errors import ConfigError, SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.policy.snapshot import Snapshot as PolicySnapshot
from rl4sys.server.acting import decide_alone, write_question
from rl4sys.server.connection import Connection, Model
from rl4sys.server.frames import Frame
from rl4sys.server.intake import Intake
from rl4sys.server.journal import FILE, Sender
from rl4sys.server.supervisor import Supervisor
from rl4sys.server.task import VERSIONS, Task
from rl4sys.spec import Columns, Spec
from rl4sys.wire.delta import difference
from rl4sys.wire.messages import ActReply, Delta, Held, Problem, Snapshot

_log = logging.getLogger("rl4sys.server")


class Session:
    """Lives on the server's event loop. Made by `open_session`."""

    def __init__(self, task: Task, live: dict[str, Any], intake: Intake, supervisor: Supervisor) -> None:
        self._task, self.intake, self.supervisor = task, intake, supervisor
        self.policy_id, self.path = task.policy_id, task.path
        self.lineage, self.algorithm = str(live["lineage"]), str(live["algorithm"])
        self.settings, self.max_staleness = live["settings"], live["max_staleness"]
        self.spec = Spec.from_json(live["spec"])
        self.not_portable = str(live["not_portable"])
        """Why clients cannot run the policy; empty if they can."""
        self.connections: set[Connection] = set()
        self.model: Model | None = None
        self.progress: dict[str, Any] = {}
        """How far the learner is, as it last said."""
        self.problem = ""
        self.sent_bytes = 0
        self._taken: dict[Sender, int] = {}
        self._differences: dict[tuple[bytes, bytes], bytes | None] = {}
        self._acting: tuple[Model, SnapshotPolicy] | None = None
        self._first_model = asyncio.Event()
        self._compacting: asyncio.Task[None] | None = None

    async def join(self, connection: Connection, held: Held) -> int:
        """Serve a client from now on; returns the highest sequence of its present life that is on disk."""
        if connection.pinned_version is not None:
            connection.offer(self._kept(connection.pinned_version), 0)
        on_disk = await self.intake.admit(connection.sender)
        self.connections.add(connection)
        connection.held = self._recall(held)
        if connection.pinned_version is None and self.model is not None:
            connection.offer(self.model, self._taken.get(connection.sender, 0))
        if self.problem:
            connection.tell(Problem.SERVER, self.problem)
        connection.acknowledge(on_disk)
        return on_disk

    def leave(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._dismiss_absent({connection.sender})

    def encode(self, model: Model, connection: Connection) -> Snapshot:
        """The model for this client: what changed since the one it holds, or all of it where that is shorter."""
        message = Snapshot(version=model.version, digest=model.digest, wants=model.wants, taken=connection.taken)
        held = connection.held
        changed = None if held is None else self._difference(held, model)
        if held is not None and changed is not None:
            message.delta.CopyFrom(Delta(base_version=held.version, compressed=changed))
        else:
            message.full = model.content
        connection.held = model
        self.sent_bytes += len(model.content if changed is None else changed)
        return message

    async def decide(self, observation: Columns, draws: Draws) -> ActReply:
        """By the newest version: here, or, where only torch can run it, by its learner."""
        if not self.not_portable:
            policy = await self._policy()
            return self._completed(decide_alone(policy, policy.version, observation, draws))
        frame = await self.supervisor.ask(write_question(observation, draws))
        if "problem" in frame.fields:
            raise SpecError(frame.fields["problem"])
        return self._completed(ActReply.FromString(frame.content))

    def _completed(self, reply: ActReply) -> ActReply:
        reply.lineage, reply.wants = self.lineage, self.progress.get("wants", 0)
        return reply

    async def _policy(self) -> SnapshotPolicy:
        """The newest model, to decide with here; waits for the first."""
        await self._first_model.wait()
        assert self.model is not None  # set before the event is
        if self._acting is None or self._acting[0] is not self.model:
            self._acting = self.model, SnapshotPolicy(PolicySnapshot.from_bytes(self.model.content))
        return self._acting[1]

    def hear(self, frame: Frame) -> None:
        """What the worker says."""
        if frame.kind == "progress":
            self._take_progress(frame)
        elif frame.kind == "saved" and self._task.server.journal == "compact":
            self._compacting = asyncio.create_task(self._compact(frame.fields["row"]))
        elif frame.kind == "note":
            _log.warning(frame.fields["message"], extra={"policy": self.policy_id})

    def written(self, newest: dict[Sender, int]) -> None:
        """Trajectories up to these sequences are on disk."""
        for connection in self.connections:
            if connection.sender in newest:
                connection.acknowledge(newest[connection.sender])
        self._dismiss_absent(set(newest))
        self.supervisor.tell_of(self.intake.last_row)

    def trouble(self, message: str) -> None:
        """Something that may pass: clients are told once, and keep what they have."""
        message = f"{self.policy_id}: {message}"
        if self.problem == message:
            return
        self.problem = message
        _log.error(message, extra={"policy": self.policy_id})
        for connection in self.connections:
            connection.tell(Problem.SERVER, message)

    async def close(self) -> None:
        """Let the learner save, and write what has arrived."""
        await self.supervisor.stop()
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.gather(self._compacting, return_exceptions=True)
        await self.intake.close()

    def _dismiss_absent(self, senders: set[Sender]) -> None:
        for sender in senders - {connection.sender for connection in self.connections}:
            self.intake.dismiss(sender)

    def _take_progress(self, frame: Frame) -> None:
        self.progress, self.problem = frame.fields, ""
        self._taken = {Sender(client, instance): sequence for client, instance, sequence in frame.fields["taken"]}
        version = frame.fields["version"]
        # A worker that goes back to a checkpoint makes again what clients have already.
        if not frame.content or (self.model is not None and version < self.model.version):
            return
        self.model = Model.of(self.lineage, version, frame.content, frame.fields["wants"])
        self._differences.clear()
        self._first_model.set()
        for connection in self.connections:
            connection.offer(self.model, self._taken.get(connection.sender, 0))

    async def _compact(self, row: int) -> None:
        try:
            await self.intake.forget(row)
        except sqlite3.Error as problem:
            self.trouble(f"cannot compact the journal: {problem}")

    def _difference(self, held: Model, model: Model) -> bytes | None:
        between = held.digest, model.digest
        if between not in self._differences:
            self._differences[between] = difference(held.content, model.content)
        return self._differences[between]

    def _recall(self, held: Held) -> Model | None:
        """The model that a client says it holds, if it is one of ours and still here."""
        if held.lineage != self.lineage:
            return None
        try:
            model = self._kept(held.version)
        except ConfigError:
            return None
        return model if model.digest == held.digest else None

    def _kept(self, version: int) -> Model:
        if self.model is not None and self.model.version == version:
            return self.model
        folder = self.path / VERSIONS
        try:
            content = (folder / f"{version:012d}.safetensors").read_bytes()
        except OSError:
            kept = sorted(int(path.stem) for path in folder.glob("*.safetensors"))
            raise ConfigError(f"version {version} of {self.policy_id} is not kept; there are: {kept}") from None
        return Model.of(self.lineage, version, content, wants=0)


async def open_session(task: Task, executor: Executor, workers_executor: Executor) -> Session:
    """Start learning a policy; raises if it can neither be made nor opened."""
    supervisor = Supervisor(task, workers_executor)
    try:
        live = await supervisor.start()
        intake = Intake(Spec.from_json(live["spec"]), int(live["memory_size"]), task.server.limits, executor)
        session = Session(task, live, intake, supervisor)
        await intake.open(task.path / FILE, session.written, session.trouble)
    except BaseException:
        await supervisor.stop()
        raise
    supervisor.listen(session.hear, session.trouble)
    supervisor.tell_of(intake.last_row)
    return session
