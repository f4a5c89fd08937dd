"""Status of the server, as a StatusReply message and as Prometheus metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl4sys.server.connection import Connection
from rl4sys.server.dispatcher import Dispatcher
from rl4sys.server.hosted_policy import HostedPolicy
from rl4sys.wire.messages import ClientStatus, PolicyStatus, StatusReply


class StatusReporter:
    """Reads the status of all policies of a dispatcher. Thread-safe."""

    def __init__(self, dispatcher: Dispatcher, root: Path, release: str) -> None:
        self._dispatcher, self._root, self._release = dispatcher, root, release
        self._started_at = time.monotonic()

    def status(self) -> StatusReply:
        return StatusReply(
            release=self._release,
            uptime_seconds=time.monotonic() - self._started_at,
            root=str(self._root.resolve()),
            memory_bytes=memory_bytes(os.getpid()),
            policies=[_policy_status(policy) for policy in self._dispatcher.policies()],
        )

    def collect(self) -> Iterator[Any]:
        """Yield all metrics; called by prometheus_client at each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self.status()
        for name, help_text, kind in _METRICS:
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                f"rl4sys_{name}", help_text, labels=["policy"]
            )
            for policy in status.policies:
                family.add_metric([policy.policy_id], _value(policy, name))
            yield family
        memory = GaugeMetricFamily("rl4sys_server_memory_bytes", "RAM of the server process, in bytes.")
        memory.add_metric([], status.memory_bytes)
        yield memory


_METRICS = [
    ("version", "Version of the newest model.", "gauge"),
    ("learning", "1 if the policy is learning, 0 if its learner is starting or has failed.", "gauge"),
    ("clients", "Number of connected clients.", "gauge"),
    ("steps_received", "Steps written to the journal.", "counter"),
    ("steps_used", "Steps used for training.", "counter"),
    ("steps_refused", "Steps refused because their staleness was above the limit.", "counter"),
    ("steps_waiting", "Steps in the journal that the learner has not read yet.", "gauge"),
    ("steps_dropped", "Steps dropped by clients because they could not be sent.", "gauge"),
    ("fallback_decisions", "Number of fallback actions that clients used.", "gauge"),
    ("steps_per_second", "Steps received per second, over the last 10 seconds.", "gauge"),
    ("staleness", "Mean staleness of recent trajectories, in versions.", "gauge"),
    ("episode_return", "Mean return of the last 100 episodes.", "gauge"),
    ("snapshot_bytes", "Size of the newest model, in bytes.", "gauge"),
    ("sent_bytes", "Bytes of models sent to clients.", "counter"),
    ("journal_bytes", "Size of the journal on disk, in bytes.", "gauge"),
    ("memory_bytes", "RAM of the learner process, in bytes.", "gauge"),
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


def _policy_status(policy: HostedPolicy) -> PolicyStatus:
    progress = policy.progress
    received, used, refused = (
        policy.intake.steps_received,
        progress.get("steps_used", 0),
        progress.get("steps_refused", 0),
    )
    return PolicyStatus(
        policy_id=policy.policy_id,
        algorithm=policy.algorithm,
        state=policy.supervisor.state,
        problem=policy.last_error or "; ".join(progress.get("alerts", ())),
        version=progress.get("version", 0),
        run=str(policy.path),
        steps_received=received,
        steps_used=used,
        steps_refused=refused,
        steps_waiting=max(0, received - used - refused),
        steps_per_second=policy.intake.steps_per_second(),
        staleness=progress.get("staleness", 0.0),
        episode_return=progress.get("episode_return"),
        snapshot_bytes=len(policy.model.content) if policy.model else 0,
        sent_bytes=policy.sent_bytes,
        journal_bytes=_size(policy.path / "journal.db") + _size(policy.path / "journal.db-wal"),
        memory_bytes=memory_bytes(policy.supervisor.pid) if policy.supervisor.pid else 0,
        clients=[_client_status(connection) for connection in list(policy.connections)],
    )


def _client_status(connection: Connection) -> ClientStatus:
    return ClientStatus(
        client_id=connection.sender.client,
        peer=connection.peer,
        connected_seconds=time.monotonic() - connection.connected_at,
        steps_received=connection.steps_received,
        trajectories_refused=connection.trajectories_refused,
        report=connection.report,
    )


def memory_bytes(pid: int) -> int:
    """Return the proportional set size of a process in bytes, or 0 if the process does not exist."""
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
