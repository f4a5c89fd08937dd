"""Tests of the C++ client with a real server, alone and together with the Python client."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from rl4sys.client import RL4SysAction, RL4SysAgent
from tests.cpp.conftest import Binary
from tests.live import SMALL_PPO, LiveServer, eventually, running_server

SIZES = {"observation": 3, "action": 2}
ARCHIVING = "journal: archive\n"


class Drive:
    """Process of the C++ program ``drive``, which requests actions continuously or with a pause after each step."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._began = time.monotonic()

    def await_greeting(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> dict[str, Any]:
        """Stop the process cleanly and return its measurements."""
        os.kill(self._process.pid, signal.SIGTERM)
        return self.result()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def result(self) -> dict[str, Any]:
        out, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, err
        seen: dict[str, Any] = json.loads(out.splitlines()[-1])
        seen["elapsed"], seen["log"] = time.monotonic() - self._began, err
        return seen

    def refusal(self) -> str:
        _, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 2
        return err


StartDrive = Callable[..., Drive]


@pytest.fixture
def drive(binary: Binary, tmp_path: Path) -> Iterator[StartDrive]:
    started: list[Drive] = []

    def start(
        address: str, client_id: str, steps: int = 2000, threads: int = 1, pause: int = 0, **changes: Any
    ) -> Drive:
        config = {
            "client_id": client_id,
            **SIZES,
            **SMALL_PPO,
            "max_staleness": 10**6,
            "server": {"address": address, "timeout_seconds": 60, **changes.pop("server", {})},
            "outbox": {"spool": str(tmp_path / "spool"), **changes.pop("outbox", {})},
            **changes,
        }
        path = tmp_path / f"{client_id}.json"
        path.write_text(json.dumps(config))
        started.append(Drive([str(binary("drive")), str(path), "", str(steps), str(threads), str(pause), "ready"]))
        return started[-1]

    yield start
    for system in started:
        system.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Server with an archiving journal, so that tests can count the received steps."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "server.yaml").write_text(ARCHIVING)
    with running_server(folder / "live", "--config", str(folder / "server.yaml")) as running:
        yield running


def test_cpp_client_sends_steps_and_adopts_new_models(server: LiveServer, drive: StartDrive) -> None:
    seen = drive(server.address, "cpp", threads=2, pause=500).result()
    assert seen["decisions"] == seen["steps_acknowledged"] == 4000
    assert seen["dropped_steps"] == seen["fallback_decisions"] == seen["trajectories_refused"] == 0
    assert seen["versions_adopted"] > 2
    policy = server.wait_for_policy("cpp", lambda policy: policy.steps_used == 4000)
    assert policy.version > 40


def decide_again(config: dict[str, Any], observations: list[list[float]]) -> list[RL4SysAction]:
    """Return the actions of a Python client for the same observations."""
    with RL4SysAgent(config) as agent:
        assert agent.wait_for_model(60.0)
        trajectory, actions = None, []
        for observation in observations:
            trajectory, action = agent.request_for_action(trajectory, np.asarray(observation, np.float32))
            agent.add_to_trajectory(trajectory, action)
            actions.append(action)
    return actions


def test_same_seed_and_version_give_same_actions_in_cpp_and_python(
    server: LiveServer, drive: StartDrive, tmp_path: Path
) -> None:
    changes = {"seed": 7, "pin_version": 0, "policy_id": "twins"}
    with RL4SysAgent(
        {"client_id": "maker", **SIZES, **SMALL_PPO, "policy_id": "twins", "server": {"address": server.address}}
    ):
        server.wait_for_policy("twins", lambda policy: policy.state == "learning")
    seen = drive(server.address, "twin", steps=100, **changes).result()
    config = {"client_id": "other_twin", **SIZES, **SMALL_PPO, **changes, "server": {"address": server.address}}
    actions = decide_again({**config, "outbox": {"spool": str(tmp_path / "python")}}, seen["observations"])
    assert set(seen["actions"]) == {0, 1}
    assert seen["actions"] == [action.act for action in actions]
    np.testing.assert_allclose(seen["log_probs"], [action.log_prob for action in actions], atol=1e-6, rtol=0)


def test_multi_discrete_actions_are_learned_and_equal_in_cpp_and_python(
    server: LiveServer, drive: StartDrive, tmp_path: Path
) -> None:
    sizes = {**SIZES, "action": [2, 3, 4]}
    learned = drive(server.address, "several", pause=500, **sizes).result()
    assert learned["steps_acknowledged"] == 2000
    assert learned["fallback_decisions"] == learned["trajectories_refused"] == 0
    assert learned["versions_adopted"] > 2
    changes = {**sizes, "seed": 7, "pin_version": learned["version"], "policy_id": "several"}
    seen = drive(server.address, "pinned", steps=100, **changes).result()
    config = {"client_id": "other", **SMALL_PPO, **changes, "server": {"address": server.address}}
    actions = decide_again({**config, "outbox": {"spool": str(tmp_path / "python")}}, seen["observations"])
    assert set(seen["actions"]) == {0, 1, 2, 3}
    assert seen["actions"] == np.array([action.act for action in actions]).ravel().tolist()
    np.testing.assert_allclose(seen["log_probs"], [action.log_prob for action in actions], atol=1e-6, rtol=0)


def test_python_and_cpp_clients_share_a_policy(server: LiveServer, drive: StartDrive) -> None:
    system = drive(server.address, "in_cpp", steps=10**9, pause=500, policy_id="shared")
    system.await_greeting()
    config = {"client_id": "in_python", **SIZES, **SMALL_PPO, "policy_id": "shared", "max_staleness": 10**6}
    with RL4SysAgent({**config, "server": {"address": server.address}}) as agent:
        versions = set()
        trajectory = None
        for _ in range(1000):
            trajectory, action = agent.request_for_action(trajectory, np.zeros(3, np.float32))
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(1.0)
            versions.add(action.version)
            time.sleep(0.0005)
        assert agent.flush(60) or agent.statistics().steps_waiting < 64
        found = server.wait_for_policy("shared", lambda policy: len(policy.clients) == 2)
        contributed = {client.client_id: client.steps_received for client in found.clients}
    assert min(contributed.values()) > 500
    assert len(versions) > 2
    seen = system.stop()
    assert seen["versions_adopted"] > 2
    assert server.archived_steps("shared") >= seen["steps_acknowledged"] + 900


def test_cpp_client_loses_no_steps_when_server_is_killed(tmp_path: Path, drive: StartDrive) -> None:
    (tmp_path / "server.yaml").write_text(ARCHIVING)
    dice = random.Random(3)
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        system = drive(server.address, "killed", steps=10**9, threads=2, pause=2000)
        system.await_greeting()
        for attempt in range(6):
            if attempt % 2:
                server.wait_for_policy("killed", lambda policy: len(policy.clients) == 1)
            time.sleep(dice.uniform(0.0, 1.0))
            server.kill()
            time.sleep(dice.uniform(0.0, 0.5))
            server.start()
        server.wait_for_policy("killed", lambda policy: any(client.steps_received for client in policy.clients))
        seen = system.stop()
        assert seen["reasons"] == [""], "the last model stays in use while the server is down"
        assert seen["dropped_steps"] == seen["steps_waiting"] == 0
        assert seen["steps_acknowledged"] == seen["decisions"] > 2000
        total = server.archived_steps("killed")
        assert total == seen["steps_acknowledged"], "each step arrives exactly once"
        server.wait_for_policy("killed", lambda policy: policy.steps_used == total)
    # If decisions waited for the network, they would take most of the time in which no server runs.
    assert seen["seconds_deciding"] < 0.2 * seen["elapsed"]


def test_cpp_client_uses_the_fallback_until_a_server_is_available(tmp_path: Path, drive: StartDrive) -> None:
    server = LiveServer(tmp_path / "live")
    system = drive(server.address, "early", steps=10**9, pause=500, server={"timeout_seconds": 0.1})
    system.await_greeting()
    server.start()
    try:
        server.wait_for_policy("early", lambda policy: policy.version > 2)
        seen = system.stop()
    finally:
        server.stop()
    assert set(seen["reasons"]) == {"", "no model has arrived yet"}
    assert seen["steps_acknowledged"] == seen["decisions"] - seen["fallback_decisions"] > 128


def test_python_client_sends_spool_of_killed_cpp_client(tmp_path: Path, drive: StartDrive) -> None:
    (tmp_path / "server.yaml").write_text(ARCHIVING)
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        system = drive(server.address, "heir", steps=10**9, pause=100, outbox={"memory_bytes": 0})
        system.await_greeting()
        server.wait_for_policy("heir", lambda policy: policy.steps_received > 0)
        server.kill()
        spool = tmp_path / "spool" / "heir"
        eventually(lambda: list(spool.glob("*/*.segment")))
        system.kill()
        before = server.archived_steps("heir")
        server.start()
        config = {"client_id": "heir", **SIZES, **SMALL_PPO, "server": {"address": server.address}}
        with RL4SysAgent({**config, "outbox": {"spool": str(tmp_path / "spool")}}):
            eventually(lambda: not list(spool.glob("*/*.segment")))
        assert server.archived_steps("heir") > before


def test_cpp_client_connects_with_tls_and_token_and_wrong_token_is_rejected(tmp_path: Path, drive: StartDrive) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "tokens").write_text("let-me-in policies=*\n")
    options = {"--tls-cert": "cert.pem", "--tls-key": "key.pem", "--token-file": "tokens"}
    arguments = [part for option, name in options.items() for part in (option, str(tmp_path / name))]
    with running_server(tmp_path / "live", *arguments) as server:
        tls = {"ca": "ca.pem"}
        seen = drive(server.address, "known", steps=200, server={"tls": tls, "token": "let-me-in"}).result()
        assert seen["steps_acknowledged"] == 200
        refusal = drive(server.address, "unknown", server={"tls": tls, "token": "guess"}).refusal()
        assert "check server.token" in refusal


def test_program_with_rejected_settings_exits_with_the_server_error(server: LiveServer, drive: StartDrive) -> None:
    refusal = drive(server.address, "wrong", algorithm={"name": "ppo", "lr": -1}).refusal()
    assert "algorithm.lr" in refusal
    assert "refused" in refusal
