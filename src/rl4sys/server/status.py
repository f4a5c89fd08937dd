"""What a server is doing, as a message for tools and as Prometheus metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl4sys.server.dispatcher import Dispatcher
from rl4sys.server.session import Session
from rl4sys.wire.messages import ClientStatus, PolicyStatus, StatusReply


class Reporter:
    """Looks at the sessions of a dispatcher; may be called from any thread."""

    def __init__(self, dispatcher: Dispatcher, root: Path, release: str) -> None:
        self._dispatcher, self._root, self._release = dispatcher, root, release
        self._started_at = time.monotonic()

    def status(self) -> StatusReply:
        return StatusReply(
            release=self._release,
            uptime_seconds=time.monotonic() - self._started_at,
            root=str(self._root.resolve()),
            memory_bytes=memory_bytes(os.getpid()),
            policies=[_policy_status(session) for session in self._dispatcher.sessions()],
        )

    def collect(self) -> Iterator[Any]:
        """For prometheus_client, which calls this at every scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self.status()
        for name, help_text, kind in _METRICS:
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                f"rl4sys_{name}", help_text, labels=["policy"]
            )
            for policy in status.policies:
                family.add_metric([policy.policy_id], _value(policy, name))
            yield family
        memory = GaugeMetricFamily("rl4sys_server_memory_bytes", "Memory of the server's own process.")
        memory.add_metric([], status.memory_bytes)
        yield memory


_METRICS = [
    ("version", "Versions the policy's learner has made.", "gauge"),
    ("learning", "1 while the policy's learner runs.", "gauge"),
    ("clients", "Clients connected.", "gauge"),
    ("steps_received", "Steps written to the journal.", "counter"),
    ("steps_used", "Steps learnt from.", "counter"),
    ("steps_refused", "Steps refused as too stale.", "counter"),
    ("steps_waiting", "Steps in the journal the learner has not reached.", "gauge"),
    ("steps_dropped", "Steps that clients dropped because they could not be sent.", "gauge"),
    ("fallback_decisions", "Decisions that clients made without a model.", "gauge"),
    ("steps_per_second", "Steps received a second, over the last 10 seconds.", "gauge"),
    ("staleness", "Versions that recent trajectories lagged behind, mean.", "gauge"),
    ("episode_return", "Mean return of the last 100 episodes.", "gauge"),
    ("snapshot_bytes", "Size of the newest model.", "gauge"),
    ("sent_bytes", "Bytes of models sent.", "counter"),
    ("journal_bytes", "Size of the journal.", "gauge"),
    ("memory_bytes", "Memory of the policy's learner.", "gauge"),
]


def _value(policy: PolicyStatus, name: str) -> float:
    if name == "learning":
        return float(policy.state == "learning")
    if name == "clients":
        return float(len(policy.clients))
    if name == "steps_dropped":
        return float(sum(client.report.dropped_steps for client in policy.clients))
    if name == "fallback_decisions":
        return float(sum(client.report.fallback_decisions for client in policy.clients))
    if name == "episode_return" and not policy.HasField("episode_return"):
        return float("nan")
    return float(getattr(policy, name))


def _policy_status(session: Session) -> PolicyStatus:
    progress = session.progress
    received, used, refused = (
        session.intake.steps_received,
        progress.get("steps_used", 0),
        progress.get("steps_refused", 0),
    )
    return PolicyStatus(
        policy_id=session.policy_id,
        algorithm=session.algorithm,
        state=session.supervisor.state,
        problem=session.problem or "; ".join(progress.get("alerts", ())),
        version=progress.get("version", 0),
        run=str(session.path),
        steps_received=received,
        steps_used=used,
        steps_refused=refused,
        steps_waiting=max(0, received - used - refused),
        steps_per_second=session.intake.steps_per_second(),
        staleness=progress.get("staleness", 0.0),
        episode_return=progress.get("episode_return"),
        snapshot_bytes=len(session.model.content) if session.model else 0,
        sent_bytes=session.sent_bytes,
        journal_bytes=_size(session.path / "journal.db") + _size(session.path / "journal.db-wal"),
        memory_bytes=memory_bytes(session.supervisor.pid) if session.supervisor.pid else 0,
        clients=[_client_status(connection) for connection in list(session.connections)],
    )


def _client_status(connection: Any) -> ClientStatus:
    return ClientStatus(
        client_id=connection.sender.client,
        peer=connection.peer,
        connected_seconds=time.monotonic() - connection.connected_at,
        steps_received=connection.steps_received,
        trajectories_refused=connection.trajectories_refused,
        report=connection.report,
    )


def memory_bytes(pid: int) -> int:
    """What the process has of memory, its part of what it shares counted proportionally; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
