"""One policy on the server: its intake, learner process, newest model and connected clients."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import Executor
from typing import Any

from rl4sys.errors import ConfigError, SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot as PolicySnapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.runs.directory import RunDirectory
from rl4sys.server.acting import decide_without_memory, encode_request
from rl4sys.server.connection import Connection, PublishedModel
from rl4sys.server.intake import Intake
from rl4sys.server.journal import FILE, Sender
from rl4sys.server.learner_statistics import read_client_sequences
from rl4sys.server.supervisor import Supervisor
from rl4sys.server.task import LearnerTask
from rl4sys.spec import Columns, Spec
from rl4sys.wire.delta import make_delta
from rl4sys.wire.messages import ActReply, Delta, Held, Problem, Snapshot
from rl4sys.workers.frames import Frame

_log = logging.getLogger("rl4sys.server")


class HostedPolicy:
    """One policy on the server. Create it with `open_policy`. Not thread-safe: use it on the event loop only."""

    def __init__(self, task: LearnerTask, live: dict[str, Any], intake: Intake, supervisor: Supervisor) -> None:
        self._task, self.intake, self.supervisor = task, intake, supervisor
        self.policy_id, self.path = task.policy_id, task.path
        self.lineage, self.algorithm = str(live["lineage"]), str(live["algorithm"])
        self.settings, self.max_staleness = live["settings"], live["max_staleness"]
        self.spec = Spec.from_json(live["spec"])
        self.not_portable = str(live["not_portable"])
        """Reason why clients cannot run the policy themselves; empty if they can."""
        self.connections: set[Connection] = set()
        self.model: PublishedModel | None = None
        self.progress: dict[str, Any] = {}
        """Fields of the last progress message from the learner process."""
        self.last_error = ""
        self.sent_bytes = 0
        self._last_learned: dict[Sender, int] = {}
        """Highest sequence number per client instance that the learner has trained on."""
        self._delta_cache: dict[tuple[bytes, bytes], bytes | None] = {}
        self._policy_cache: tuple[PublishedModel, SnapshotPolicy] | None = None
        self._first_model = asyncio.Event()
        self._compacting: asyncio.Task[None] | None = None

    async def add_client(self, connection: Connection, held: Held) -> int:
        """Register a client and return the highest sequence of this client instance already on disk."""
        if connection.pinned_version is not None:
            connection.offer_model(self._load_version(connection.pinned_version), 0)
        on_disk = await self.intake.add_sender(connection.sender)
        self.connections.add(connection)
        connection.held = self._model_held_by(held)
        if connection.pinned_version is None and self.model is not None:
            connection.offer_model(self.model, self._last_learned.get(connection.sender, 0))
        if self.last_error:
            connection.add_problem(Problem.SERVER, self.last_error)
        connection.acknowledge(on_disk)
        return on_disk

    def remove_client(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._close_disconnected({connection.sender})

    def encode_model(self, model: PublishedModel, connection: Connection) -> Snapshot:
        """Encode `model` for a client: a delta against the model the client holds, or the full model if smaller."""
        message = Snapshot(version=model.version, digest=model.digest, wants=model.wants, taken=connection.last_learned)
        held = connection.held
        delta = None if held is None else self._make_delta(held, model)
        if held is not None and delta is not None:
            message.delta.CopyFrom(Delta(base_version=held.version, compressed=delta))
        else:
            message.full = model.content
        connection.held = model
        self.sent_bytes += len(model.content if delta is None else delta)
        return message

    async def decide(self, observation: Columns, draws: Draws) -> ActReply:
        """Return a decision of the newest policy version. A policy that needs torch runs in its learner process."""
        if not self.not_portable:
            policy = await self._newest_policy()
            return self._with_progress(decide_without_memory(policy, policy.version, observation, draws))
        frame = await self.supervisor.request_decision(encode_request(observation, draws))
        if "error" in frame.fields:
            raise SpecError(frame.fields["error"])
        return self._with_progress(ActReply.FromString(frame.content))

    def on_learner_message(self, frame: Frame) -> None:
        """Handle a progress, checkpoint or log message from the learner process."""
        if frame.kind == "progress":
            self._update_progress(frame)
        elif frame.kind == "saved" and self._task.server.journal == "compact":
            self._compacting = asyncio.create_task(self._compact(frame.fields["row"]))
        elif frame.kind == "log":
            _log.warning(frame.fields["message"], extra={"policy": self.policy_id})

    def on_trajectories_written(self, newest: dict[Sender, int]) -> None:
        """Acknowledge to each client the trajectories that are now on disk, and wake the learner."""
        for connection in self.connections:
            if connection.sender in newest:
                connection.acknowledge(newest[connection.sender])
        self._close_disconnected(set(newest))
        self.supervisor.notify_written(self.intake.last_row)

    def report_error(self, message: str) -> None:
        """Log an error and send it to all clients, unless it equals the last error. Clients keep their unsent data."""
        message = f"policy '{self.policy_id}': {message}"
        if self.last_error == message:
            return
        self.last_error = message
        _log.error(message, extra={"policy": self.policy_id})
        for connection in self.connections:
            connection.add_problem(Problem.SERVER, message)

    async def close(self) -> None:
        """Make the learner save and stop, then write the remaining trajectories to disk."""
        await self.supervisor.stop()
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.gather(self._compacting, return_exceptions=True)
        await self.intake.close()

    def _with_progress(self, reply: ActReply) -> ActReply:
        reply.lineage, reply.wants = self.lineage, self.progress.get("wants", 0)
        return reply

    async def _newest_policy(self) -> SnapshotPolicy:
        """Return the newest model as a policy. If there is no model yet, wait for the first model."""
        await self._first_model.wait()
        assert self.model is not None  # the model is set before the event
        if self._policy_cache is None or self._policy_cache[0] is not self.model:
            self._policy_cache = self.model, SnapshotPolicy(PolicySnapshot.from_bytes(self.model.content))
        return self._policy_cache[1]

    def _close_disconnected(self, senders: set[Sender]) -> None:
        for sender in senders - {connection.sender for connection in self.connections}:
            self.intake.remove_sender(sender)

    def _update_progress(self, frame: Frame) -> None:
        self.progress, self.last_error = frame.fields, ""
        self._last_learned = read_client_sequences(frame.fields["last_learned"])
        version = frame.fields["version"]
        # After a restart the learner continues from its checkpoint and re-creates versions that clients already have.
        if not frame.content or (self.model is not None and version < self.model.version):
            return
        self.model = PublishedModel.of(self.lineage, version, frame.content, frame.fields["wants"])
        self._delta_cache.clear()
        self._first_model.set()
        for connection in self.connections:
            connection.offer_model(self.model, self._last_learned.get(connection.sender, 0))

    async def _compact(self, row: int) -> None:
        try:
            await self.intake.delete_rows(row)
        except sqlite3.Error as error:
            self.report_error(f"cannot compact the journal: {error}")

    def _make_delta(self, held: PublishedModel, model: PublishedModel) -> bytes | None:
        digests = held.digest, model.digest
        if digests not in self._delta_cache:
            self._delta_cache[digests] = make_delta(held.content, model.content)
        return self._delta_cache[digests]

    def _model_held_by(self, held: Held) -> PublishedModel | None:
        """Return the model a client claims to hold, or None if the server stores no identical model of this lineage."""
        if held.lineage != self.lineage:
            return None
        try:
            model = self._load_version(held.version)
        except ConfigError:
            return None
        return model if model.digest == held.digest else None

    def _load_version(self, version: int) -> PublishedModel:
        if self.model is not None and self.model.version == version:
            return self.model
        stored = RunDirectory(self.path).versions()
        try:
            content = stored[version].read_bytes()
        except (KeyError, OSError):
            raise ConfigError(
                f"version {version} of policy '{self.policy_id}' is not stored; available versions: "
                f"{', '.join(map(str, stored)) or 'none'}"
            ) from None
        return PublishedModel.of(self.lineage, version, content, wants=0)


async def open_policy(task: LearnerTask, executor: Executor, process_executor: Executor) -> HostedPolicy:
    """Open or create a policy and start its learner.

    Raises `ConfigError` if the settings are invalid, and `RunError` if the policy cannot be opened at the moment.
    """
    supervisor = Supervisor(task, process_executor)
    try:
        live = await supervisor.start()
        intake = Intake(Spec.from_json(live["spec"]), int(live["memory_size"]), task.server.limits, executor)
        policy = HostedPolicy(task, live, intake, supervisor)
        await intake.open(task.path / FILE, policy.on_trajectories_written, policy.report_error)
    except BaseException:
        await supervisor.stop()
        raise
    supervisor.subscribe(policy.on_learner_message, policy.report_error)
    supervisor.notify_written(intake.last_row)
    return policy
