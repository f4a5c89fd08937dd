"""Failures of the server, its learners, the disk and the clock."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rl4sys.policy.snapshot import Snapshot
from rl4sys.server.journal import read_trajectories
from tests.live import SMALL_PPO, LiveServer, WireClient, eventually, make_trajectory, running_server

NEVER_STALE = {**SMALL_PPO, "max_staleness": 10**6, "normalize_obs": True}
"""Learner settings that accept any staleness, so that the models depend only on the trajectories."""


@pytest.fixture
def saving_server(tmp_path: Path):
    """Server that saves a checkpoint every 0.1 seconds, so that some kills interrupt a checkpoint."""
    (tmp_path / "server.yaml").write_text("checkpoint_seconds: 0.1\nkeep_versions: 1000\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as running:
        yield running


def models(server: LiveServer, policy_id: str) -> dict[int, bytes]:
    folder = server.root / policy_id / "versions"
    return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


def send_all(server: LiveServer, policy_id: str, last: int) -> None:
    with WireClient(server.address) as client:
        client.hello(policy_id, settings=NEVER_STALE)
        on_disk = client.receive("welcome").acknowledged
        client.send_trajectories(*(make_trajectory(n) for n in range(on_disk + 1, last + 1)))
        client.wait_for_ack(last)


def test_models_are_bit_exact_after_repeated_sigkill(saving_server: LiveServer) -> None:
    server, rng = saving_server, random.Random(5)
    sent = [40, *sorted(rng.sample(range(60, 400, 2), 6)), 400]
    last = sent[-1]
    for part in sent:
        send_all(server, "unbroken", part)
        server.wait_for_policy("unbroken", lambda policy, part=part: policy.steps_used == part * 32)
    # The server stops cleanly before the first kill, so that the policy "unbroken" is complete on disk.
    assert server.stop() == 0
    unbroken, rows = models(server, "unbroken"), (server.root / "unbroken" / "metrics.jsonl").read_bytes()
    server.start()
    for part in sent:
        send_all(server, "broken", part)
        time.sleep(rng.uniform(0.0, 0.3))
        server.kill()
        server.start()
        final = server.wait_for_policy("broken", lambda policy, part=part: policy.steps_used == part * 32)
    assert final.steps_received == last * 32
    assert final.version == last * 32 // 64
    broken = models(server, "broken")
    assert unbroken[final.version] == broken[final.version]
    first, newest = (Snapshot.from_bytes(unbroken[version]) for version in (0, final.version))
    assert any(not np.array_equal(first.weights[name], newest.weights[name]) for name in first.weights), (
        "the policy was trained"
    )
    shared = set(unbroken) & set(broken)
    assert shared >= {0, *(part * 32 // 64 for part in sent)}
    assert all(unbroken[version] == broken[version] for version in shared)
    assert server.stop() == 0
    assert (server.root / "broken" / "metrics.jsonl").read_bytes() == rows
    assert rows.count(b"\n") > 5


def test_cleanly_stopped_server_saves_all_trained_steps(own_server: LiveServer) -> None:
    send_all(own_server, "saved", 20)
    own_server.wait_for_policy("saved", lambda policy: policy.steps_waiting == 0)
    began = time.monotonic()
    assert own_server.stop() == 0
    assert time.monotonic() - began < 30
    run = own_server.root / "saved"
    assert json.loads((run / "status.json").read_text())["status"] == "stopped"
    assert (run / "checkpoints/latest").resolve().name == f"step_{20 * 32:012d}"
    log = [json.loads(line) for line in (own_server.root / "server.log").read_text().splitlines()]
    assert {"policy opened", "client connected", "client disconnected", "server stopping"} <= {
        record["event"] for record in log
    }


def test_killed_learner_is_restarted_and_trains_on_all_steps(own_server: LiveServer) -> None:
    send_all(own_server, "victim", 10)
    own_server.wait_for_policy("victim", lambda policy: policy.steps_waiting == 0)
    pid = json.loads((own_server.root / "victim/status.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    send_all(own_server, "victim", 20)
    policy = own_server.wait_for_policy("victim", lambda policy: policy.steps_used == 20 * 32)
    assert (policy.version, policy.state) == (10, "learning")


def test_failed_learner_does_not_affect_other_policies(own_server: LiveServer) -> None:
    with WireClient(own_server.address) as bad, WireClient(own_server.address) as good:
        bad.hello("diverges", settings=NEVER_STALE)
        good.hello("fine", settings=NEVER_STALE)
        extreme = np.full(32, 3e38, np.float32)
        bad.send_trajectories(make_trajectory(1, reward=extreme), make_trajectory(2, reward=-extreme))
        bad.wait_for_ack(2)
        problem = bad.receive("problem")
        assert "not finite" in problem.message
        policy = own_server.wait_for_policy("diverges", lambda policy: policy.state == "failed")
        assert "policy 'diverges': learning failed" in policy.problem
        bad.send_trajectories(make_trajectory(3))
        bad.wait_for_ack(3)
        good.send_trajectories(make_trajectory(1), make_trajectory(2))
        own_server.wait_for_policy("fine", lambda policy: policy.version == 1)


def test_full_disk_delays_acknowledgements_without_data_loss(own_server: LiveServer) -> None:
    unlimited = resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE)
    with WireClient(own_server.address) as client:
        client.hello("full-disk", settings=NEVER_STALE)
        client.send_trajectories(make_trajectory(1))
        client.wait_for_ack(1)
        size = sum(path.stat().st_size for path in (own_server.root / "full-disk").glob("journal.db-wal"))
        resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE, (size, unlimited[1]))
        client.send_trajectories(*(make_trajectory(n) for n in range(2, 200)))
        problem = client.receive("problem")
        assert "policy 'full-disk': cannot write to the journal" in problem.message
        assert client.acknowledged == 1
        resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE, unlimited)
        client.wait_for_ack(199)
    own_server.wait_for_policy("full-disk", lambda policy: policy.steps_used == 199 * 32)


def test_journal_is_compacted_after_checkpoints(saving_server: LiveServer) -> None:
    sent = 0

    def compacted() -> bool:
        nonlocal sent
        sent += 20
        send_all(saving_server, "compact", sent)
        time.sleep(0.15)
        held = len(list(read_trajectories(saving_server.root / "compact")))
        return 0 <= held < sent

    eventually(compacted)
    policy = saving_server.wait_for_policy("compact", lambda policy: policy.steps_used == sent * 32)
    assert policy.steps_received == sent * 32


def test_archive_journal_keeps_all_trajectories(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("checkpoint_seconds: 0.05\njournal: archive\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        for last in (10, 20, 30, 40):
            send_all(server, "archive", last)
            server.wait_for_policy("archive", lambda policy, last=last: policy.steps_used == last * 32)
        steps = [path.name for path in (server.root / "archive/checkpoints").glob("step_*")]
        assert len(steps) > 1
        assert len(list(read_trajectories(server.root / "archive"))) == 40


def test_server_trains_on_all_steps_despite_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import random, time\n"
        "_real = time.time\n"
        "time.time = lambda: _real() + random.choice([-86400.0, 0.0, 86400.0])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with running_server(tmp_path / "live") as server:
        send_all(server, "clock", 10)
        policy = server.wait_for_policy("clock", lambda policy: policy.steps_used == 320)
        assert policy.version == 5
        assert server.stop() == 0


def test_second_server_in_same_directory_is_rejected(own_server: LiveServer) -> None:
    command = [sys.executable, "-m", "rl4sys", "serve", "--port", "0", "--root", str(own_server.root)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert f"another server uses the directory {own_server.root}" in second.stderr


def test_port_in_use_is_reported(own_server: LiveServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl4sys", "serve", "--port", str(own_server.port), "--root", str(tmp_path / "2")]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert f"rl4sys: cannot listen on localhost:{own_server.port}" in second.stderr
    assert "Traceback" not in second.stderr
