"""Failures between a real client and a real server: kills, network loss, restarts and clock jumps."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.client import RL4SysAgent
from rl4sys.learner.learner import build_learner
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import read_trajectories
from rl4sys.server.live_config import live_config, live_learner_config
from rl4sys.spec import Spec
from tests.live import SMALL_PPO, LiveServer, eventually, free_port, running_server

SPACES = {"observation_space": 3, "action_space": 2}
NEVER_STALE = {**SMALL_PPO, "max_staleness": 10**6, "normalize_obs": True}


@pytest.fixture
def archiving_server(tmp_path: Path) -> Iterator[LiveServer]:
    """Server that saves often and keeps all trajectories, so that tests can count them."""
    (tmp_path / "server.yaml").write_text("checkpoint_seconds: 0.3\njournal: archive\nkeep_versions: 100000\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as running:
        yield running


def make_agent(address: str, client_id: str, tmp_path: Path, **changes: Any) -> RL4SysAgent:
    config = {
        "version": 1,
        "client_id": client_id,
        **NEVER_STALE,
        "server": {"address": address, "timeout_seconds": 60.0},
        "outbox": {"spool": str(tmp_path / "spool")},
        **changes,
    }
    return RL4SysAgent(config, **SPACES)


class System(threading.Thread):
    """Thread that uses an agent continuously and measures the time of each step."""

    def __init__(self, agent: RL4SysAgent, pause_seconds: float = 0.0002) -> None:
        super().__init__(daemon=True)
        self._agent, self._pause_seconds = agent, pause_seconds
        self._stopping = threading.Event()
        self.microseconds: list[float] = []
        self.reasons: set[str | None] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._act_until_stopped()
        except BaseException as failure:
            self.failure = failure

    def _act_until_stopped(self) -> None:
        rng, trajectory, step = np.random.default_rng(0), None, 0
        while not self._stopping.is_set():
            observation = rng.standard_normal(3).astype(np.float32)
            began = time.perf_counter_ns()
            trajectory, action = self._agent.request_for_action(trajectory, observation)
            self._agent.add_to_trajectory(trajectory, action)
            action.update_reward(float(observation[0]) * (1.0 if action.act else -1.0))
            self.microseconds.append((time.perf_counter_ns() - began) / 1000)
            self.reasons.add(action.fallback_reason)
            step += 1
            if step % 40 == 0:
                self._agent.mark_end_of_trajectory(trajectory, action)
            time.sleep(self._pause_seconds)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def retrain_from_archive(server: LiveServer, policy_id: str) -> bytes:
    """Train a new learner once on each trajectory of the archive, in order, and return its model."""
    live = json.loads((server.root / policy_id / "configs/live.json").read_text())
    config = live_config(policy_id, live["settings"], ServerConfig())
    learner = build_learner(Spec.from_json(live["spec"]), live_learner_config(config, "cpu"), config.experiment.seed)
    for trajectory in read_trajectories(server.root / policy_id):
        learner.learn([trajectory])
    return learner.snapshot().to_bytes()


@pytest.mark.timeout(600)
def test_server_killed_20_times_trains_once_on_each_acknowledged_step(
    archiving_server: LiveServer, tmp_path: Path
) -> None:
    server, random_kills, policy_id = archiving_server, random.Random(11), "killed"
    with make_agent(server.address, policy_id, tmp_path) as agent:
        system = System(agent, pause_seconds=0.001)
        system.start()
        began = time.monotonic()
        for attempt in range(20):
            if attempt % 2:
                # Every second kill hits a server with a connected client; the other kills may hit a starting server.
                eventually(lambda: agent.statistics().connected)
            time.sleep(random_kills.uniform(0.0, 1.5))
            server.kill()
            time.sleep(random_kills.uniform(0.0, 0.3))
            server.start()
        eventually(lambda: agent.statistics().connected)
        elapsed = time.monotonic() - began
        system.stop()
        agent.close()
        statistics = agent.statistics()
    assert statistics.dropped_steps == 0
    assert statistics.steps_waiting == 0
    assert system.reasons == {None}, "the last model stays in use while the server is down"
    received = server.archived_steps(policy_id)
    assert received == statistics.steps_acknowledged > 5000
    policy = server.wait_for_policy(policy_id, lambda policy: policy.steps_used == received)
    newest = server.root / policy_id / "versions" / f"{policy.version:012d}.safetensors"
    assert policy.version > 20
    assert newest.read_bytes() == retrain_from_archive(server, policy_id)
    # Decisions that waited for a connection, a retry or a reply would take most of the time the server was down.
    assert sum(system.microseconds) / 1e6 < 0.2 * elapsed


class Proxy:
    """TCP proxy between a client and a server; can interrupt and restore their connection."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self._connected = True
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._closed = False
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """Stop forwarding data, without closing connections."""
        self._connected = False

    def restore(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs = []
        self._connected = True

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self.restore()
        self._listener.close()

    def _forward(self) -> None:
        while not self._closed:
            ends = [end for pair in self._pairs for end in pair] if self._connected else []
            try:
                ready, _, _ = select.select([self._listener, *ends], [], [], 0.02)
            except (OSError, ValueError):
                continue
            for end in ready:
                with suppress(OSError):
                    self._accept() if end is self._listener else self._forward_data(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        self._pairs.append((near, socket.create_connection(("127.0.0.1", self._target))))

    def _forward_data(self, end: socket.socket) -> None:
        pair = next((pair for pair in self._pairs if end in pair), None)
        if pair is None:
            return
        content = end.recv(65536)
        if content:
            (pair[1] if end is pair[0] else pair[0]).sendall(content)
        else:
            self._pairs.remove(pair)
            for each in pair:
                each.close()


def test_network_interruption_loses_no_steps(archiving_server: LiveServer, tmp_path: Path) -> None:
    proxy = Proxy(archiving_server.port)
    with make_agent(f"127.0.0.1:{proxy.port}", "proxied", tmp_path) as agent:
        system = System(agent)
        system.start()
        for _ in range(3):
            eventually(lambda: agent.statistics().steps_acknowledged > 0)
            proxy.interrupt()
            before = agent.statistics().decisions
            eventually(lambda before=before: agent.statistics().decisions > before + 500)
            proxy.restore()
            acknowledged = agent.statistics().steps_acknowledged
            eventually(lambda acknowledged=acknowledged: agent.statistics().steps_acknowledged > acknowledged)
        system.stop()
        agent.close()
        statistics = agent.statistics()
    proxy.close()
    assert (statistics.dropped_steps, statistics.steps_waiting) == (0, 0)
    received = archiving_server.archived_steps("proxied")
    assert received == statistics.steps_acknowledged > 1500


def test_client_started_before_server_uses_fallback_then_model(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "live")
    quick = {"server": {"address": server.address, "timeout_seconds": 0.1}}
    with make_agent(server.address, "early", tmp_path, **quick) as agent:
        system = System(agent)
        system.start()
        eventually(lambda: agent.statistics().fallback_decisions > 100)
        server.start()
        try:
            eventually(lambda: (agent.version or 0) > 2)
            system.stop()
        finally:
            server.stop()
    assert system.reasons == {"no model has arrived yet", None}


CLIENT = """
import sys, time, numpy as np
from rl4sys.client import RL4SysAgent
agent = RL4SysAgent({config}, observation_space=3, action_space=2)
rng, trajectory = np.random.default_rng(0), None
for step in range(10**9):
    trajectory, action = agent.request_for_action(trajectory, rng.standard_normal(3).astype('f4'))
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(1.0)
    if step % 50 == 49:
        agent.mark_end_of_trajectory(trajectory, action)
    if step == 500:
        print('running', flush=True)
    time.sleep(0.0005)
"""


def test_server_trains_on_data_of_killed_client_and_its_next_instance(
    archiving_server: LiveServer, tmp_path: Path
) -> None:
    address = archiving_server.address
    config = {
        "version": 1,
        "client_id": "killed-client",
        **NEVER_STALE,
        "server": {"address": address, "timeout_seconds": 60.0},
        "outbox": {"spool": str(tmp_path / "spool")},
    }
    for attempt in range(1, 3):
        code = CLIENT.replace("{config}", repr(config))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"running\n"
            archiving_server.wait_for_policy(
                "killed-client", lambda policy, attempt=attempt: policy.steps_received > 300 * attempt
            )
            os.kill(client.pid, signal.SIGKILL)
    # The last trajectories may still be queued for the disk when the client is already disconnected.
    policy = archiving_server.wait_for_policy(
        "killed-client",
        lambda policy: not policy.clients and policy.steps_used == archiving_server.archived_steps("killed-client"),
    )
    assert policy.state == "learning"
    assert policy.steps_used > 600


def test_two_clients_with_same_id_both_train_the_policy(archiving_server: LiveServer, tmp_path: Path) -> None:
    with (
        make_agent(archiving_server.address, "same-id", tmp_path) as one,
        make_agent(archiving_server.address, "same-id", tmp_path) as two,
    ):
        systems = [System(one), System(two)]
        for system in systems:
            system.start()
        eventually(lambda: min(agent.statistics().steps_acknowledged for agent in (one, two)) > 500)
        for system in systems:
            system.stop()
        for agent in (one, two):
            agent.close()
        acknowledged = [agent.statistics().steps_acknowledged for agent in (one, two)]
    received = archiving_server.archived_steps("same-id")
    assert received == sum(acknowledged)
    policy = archiving_server.wait_for_policy("same-id", lambda policy: policy.steps_used == received)
    newest = archiving_server.root / "same-id/versions" / f"{policy.version:012d}.safetensors"
    assert newest.read_bytes() == retrain_from_archive(archiving_server, "same-id")


def test_client_drops_no_steps_despite_clock_jumps(
    archiving_server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, random_kills = time.time, random.Random(3)
    monkeypatch.setattr(time, "time", lambda: real() + random_kills.choice([-1e6, 0.0, 1e6]))
    with make_agent(archiving_server.address, "clock-jumps", tmp_path) as agent:
        system = System(agent)
        system.start()
        eventually(lambda: (agent.version or 0) > 2)
        system.stop()
        assert agent.flush(30.0)
        assert agent.statistics().dropped_steps == 0


GATED_CRITIC = """
import pathlib
import time

from torch import nn

from rl4sys.networks.base import NetworkConfig, flatten
from rl4sys.policy.snapshot import input_size
from rl4sys.registry import register_network

FOLDER = pathlib.Path({folder!r})


@register_network("gated")
class Gated(nn.Module):
    Config = NetworkConfig

    def __init__(self, config, blueprint):
        super().__init__()
        self.spec = blueprint.spec
        self.out = nn.Linear(input_size(blueprint.spec), blueprint.outputs)

    def forward(self, observation):
        (FOLDER / "update-started").touch()
        while not (FOLDER / "gate-open").exists():
            time.sleep(0.01)
        return self.out(flatten(observation, self.spec))
"""
"""Network whose forward pass blocks until a file exists. As a critic, it is used in updates only."""


def test_long_update_does_not_delay_other_policies(tmp_path: Path) -> None:
    (tmp_path / "gated.py").write_text(GATED_CRITIC.format(folder=str(tmp_path)))
    (tmp_path / "server.yaml").write_text(f"plugins: [{tmp_path / 'gated.py'}]\n")
    gated = {"network": {"actor": {"hidden_dims": [8]}, "critic": {"type": "gated"}}}
    with (
        running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server,
        make_agent(server.address, "busy", tmp_path, **gated) as busy,
        make_agent(server.address, "other", tmp_path) as other,
    ):
        systems = [System(busy), System(other)]
        for system in systems:
            system.start()
        eventually((tmp_path / "update-started").exists)
        before = other.version or 0
        eventually(lambda: (other.version or 0) > before + 5)
        eventually(lambda: busy.statistics().steps_acknowledged > 500)
        for system in systems:
            system.stop()
        assert busy.flush(30.0)
        assert busy.version == 0, "the first update is still blocked"
        (tmp_path / "gate-open").touch()
        assert busy.wait_for_model(60.0, version=1)


def test_client_adopts_new_lineage_from_server_with_empty_directory(tmp_path: Path) -> None:
    first = LiveServer(tmp_path / "one")
    first.start()
    with make_agent(first.address, "new-lineage", tmp_path) as agent:
        system = System(agent)
        system.start()
        eventually(lambda: (agent.version or 0) > 3)
        first.kill()
        before = agent._pace.model
        assert before is not None
        second = LiveServer(tmp_path / "two")
        second.port, second.address = first.port, first.address
        second.start()
        try:
            # A new lineage starts at version 0, but may have advanced before the first check.
            eventually(lambda: agent._pace.model is not None and agent._pace.model.lineage != before.lineage)
            eventually(lambda: (agent.version or 0) > 2)
            system.stop()
        finally:
            second.stop()
