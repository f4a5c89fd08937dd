"""A real client and a real server, and everything between them going wrong."""

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
from rl4sys.learner import build_learner
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import read_trajectories
from rl4sys.server.settings import live_config, live_learner_config
from rl4sys.spec import Spec
from tests.live import SMALL_PPO, LiveServer, eventually, free_port, running_server

SPACES = {"observation_space": 3, "action_space": 2}
PATIENT = {**SMALL_PPO, "max_staleness": 10**6, "normalize_obs": True}


@pytest.fixture
def archiving_server(tmp_path: Path) -> Iterator[LiveServer]:
    """Saves often, and keeps all it was sent, to be counted."""
    (tmp_path / "server.yaml").write_text("checkpoint_seconds: 0.3\njournal: archive\nkeep_versions: 100000\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as running:
        yield running


def make_agent(address: str, client_id: str, tmp_path: Path, **changes: Any) -> RL4SysAgent:
    config = {
        "version": 1,
        "client_id": client_id,
        **PATIENT,
        "server": {"address": address, "timeout_seconds": 60.0},
        "outbox": {"spool": str(tmp_path / "spool")},
        **changes,
    }
    return RL4SysAgent(config, **SPACES)


class System(threading.Thread):
    """A host that decides as fast as it can and never asks how the server is; each step is timed."""

    def __init__(self, agent: RL4SysAgent, pause_seconds: float = 0.0002) -> None:
        super().__init__(daemon=True)
        self._agent, self._pause_seconds = agent, pause_seconds
        self._stopping = threading.Event()
        self.microseconds: list[float] = []
        self.reasons: set[str | None] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._decide_on()
        except BaseException as failure:
            self.failure = failure

    def _decide_on(self) -> None:
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


def weights_of_a_learner_fed_once(server: LiveServer, policy_id: str) -> bytes:
    """What must have been learnt: each trajectory of the archive, in order, exactly once."""
    live = json.loads((server.root / policy_id / "configs/live.json").read_text())
    config = live_config(policy_id, live["settings"], ServerConfig())
    learner = build_learner(Spec.from_json(live["spec"]), live_learner_config(config, "cpu"), config.experiment.seed)
    for trajectory in read_trajectories(server.root / policy_id):
        learner.learn([trajectory])
    return learner.snapshot().to_bytes()


@pytest.mark.timeout(600)
def test_a_server_killed_20_times_under_load_learns_all_it_acknowledged_exactly_once(
    archiving_server: LiveServer, tmp_path: Path
) -> None:
    server, dice, policy_id = archiving_server, random.Random(11), "killed"
    with make_agent(server.address, policy_id, tmp_path) as agent:
        system = System(agent, pause_seconds=0.001)
        system.start()
        began = time.monotonic()
        for life in range(20):
            if life % 2:
                # Sometimes while it starts, sometimes when it is in full work.
                eventually(lambda: agent.statistics().connected)
            time.sleep(dice.uniform(0.0, 1.5))
            server.kill()
            time.sleep(dice.uniform(0.0, 0.3))
            server.start()
        eventually(lambda: agent.statistics().connected)
        elapsed = time.monotonic() - began
        system.stop()
        agent.close()
        statistics = agent.statistics()
    assert statistics.dropped_steps == 0
    assert statistics.steps_waiting == 0
    assert system.reasons == {None}, "the last model stays in use while the server is away"
    received = server.archived_steps(policy_id)
    assert received == statistics.steps_acknowledged > 5000
    policy = server.await_policy(policy_id, lambda policy: policy.steps_used == received)
    newest = server.root / policy_id / "versions" / f"{policy.version:012d}.safetensors"
    assert policy.version > 20
    assert newest.read_bytes() == weights_of_a_learner_fed_once(server, policy_id)
    # Decisions that waited for a connection, a backoff or an answer would take up most of the time it was away.
    assert sum(system.microseconds) / 1e6 < 0.2 * elapsed


class Cable:
    """Carries bytes between a client and a server until it is cut, and again when it is mended."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self._whole = True
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._closed = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Silently: nothing arrives any more, and nobody is told."""
        self._whole = False

    def mend(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs = []
        self._whole = True

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self.mend()
        self._listener.close()

    def _carry(self) -> None:
        while not self._closed:
            ends = [end for pair in self._pairs for end in pair] if self._whole else []
            try:
                ready, _, _ = select.select([self._listener, *ends], [], [], 0.02)
            except (OSError, ValueError):
                continue
            for end in ready:
                with suppress(OSError):
                    self._accept() if end is self._listener else self._pass_on(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        self._pairs.append((near, socket.create_connection(("127.0.0.1", self._target))))

    def _pass_on(self, end: socket.socket) -> None:
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


def test_a_network_that_is_cut_and_mended_loses_nothing(archiving_server: LiveServer, tmp_path: Path) -> None:
    cable = Cable(archiving_server.port)
    with make_agent(f"127.0.0.1:{cable.port}", "cable", tmp_path) as agent:
        system = System(agent)
        system.start()
        for _ in range(3):
            eventually(lambda: agent.statistics().steps_acknowledged > 0)
            cable.cut()
            before = agent.statistics().decisions
            eventually(lambda before=before: agent.statistics().decisions > before + 500)
            cable.mend()
            acknowledged = agent.statistics().steps_acknowledged
            eventually(lambda acknowledged=acknowledged: agent.statistics().steps_acknowledged > acknowledged)
        system.stop()
        agent.close()
        statistics = agent.statistics()
    cable.close()
    assert (statistics.dropped_steps, statistics.steps_waiting) == (0, 0)
    received = archiving_server.archived_steps("cable")
    assert received == statistics.steps_acknowledged > 1500


def test_a_client_that_starts_before_its_server_falls_back_and_then_learns(tmp_path: Path) -> None:
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
        print('going', flush=True)
    time.sleep(0.0005)
"""


def test_a_client_killed_in_the_middle_leaves_its_data_and_its_next_life_goes_on(
    archiving_server: LiveServer, tmp_path: Path
) -> None:
    address = archiving_server.address
    config = {
        "version": 1,
        "client_id": "mortal",
        **PATIENT,
        "server": {"address": address, "timeout_seconds": 60.0},
        "outbox": {"spool": str(tmp_path / "spool")},
    }
    for life in range(1, 3):
        code = CLIENT.replace("{config}", repr(config))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"going\n"
            archiving_server.await_policy("mortal", lambda policy, life=life: policy.steps_received > 300 * life)
            os.kill(client.pid, signal.SIGKILL)
    # The last that arrived may still be in line for the disk when its client is known to be gone.
    policy = archiving_server.await_policy(
        "mortal", lambda policy: not policy.clients and policy.steps_used == archiving_server.archived_steps("mortal")
    )
    assert policy.state == "learning"
    assert policy.steps_used > 600


def test_two_processes_with_one_id_both_teach_the_policy(archiving_server: LiveServer, tmp_path: Path) -> None:
    with (
        make_agent(archiving_server.address, "twin", tmp_path) as one,
        make_agent(archiving_server.address, "twin", tmp_path) as two,
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
    received = archiving_server.archived_steps("twin")
    assert received == sum(acknowledged)
    policy = archiving_server.await_policy("twin", lambda policy: policy.steps_used == received)
    newest = archiving_server.root / "twin/versions" / f"{policy.version:012d}.safetensors"
    assert newest.read_bytes() == weights_of_a_learner_fed_once(archiving_server, "twin")


def test_a_client_whose_clock_jumps_goes_on(
    archiving_server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, dice = time.time, random.Random(3)
    monkeypatch.setattr(time, "time", lambda: real() + dice.choice([-1e6, 0.0, 1e6]))
    with make_agent(archiving_server.address, "jumpy", tmp_path) as agent:
        system = System(agent)
        system.start()
        eventually(lambda: (agent.version or 0) > 2)
        system.stop()
        assert agent.flush(30.0)
        assert agent.statistics().dropped_steps == 0


def test_a_learner_busy_for_minutes_holds_up_nobody_else(archiving_server: LiveServer, tmp_path: Path) -> None:
    endless = {**PATIENT, "algorithm": {"name": "ppo", "epochs": 10_000, "minibatch_size": 1}}
    with (
        make_agent(archiving_server.address, "busy", tmp_path, **endless) as busy,
        make_agent(archiving_server.address, "brisk", tmp_path) as brisk,
    ):
        systems = [System(busy), System(brisk)]
        for system in systems:
            system.start()
        eventually(lambda: (brisk.version or 0) > 5)
        eventually(lambda: busy.statistics().steps_acknowledged > 500)
        for system in systems:
            system.stop()
        assert busy.version == 0, "its first update is under way"
        assert busy.flush(30.0)


def test_after_the_servers_directory_was_removed_clients_start_over_with_the_new_policy(tmp_path: Path) -> None:
    first = LiveServer(tmp_path / "one")
    first.start()
    with make_agent(first.address, "reborn", tmp_path) as agent:
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
            # Another lineage begins at version 0 again, and may have gone on when it is first looked at.
            eventually(lambda: agent._pace.model is not None and agent._pace.model.lineage != before.lineage)
            eventually(lambda: (agent.version or 0) > 2)
            system.stop()
        finally:
            second.stop()
