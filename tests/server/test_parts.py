"""Unit tests of server components, for cases that are hard to cause through a running server."""

from __future__ import annotations

import asyncio
import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl4sys.config import parse
from rl4sys.errors import ConfigError, RunError
from rl4sys.learner.footprint import learner_cost
from rl4sys.registry import find_plugin
from rl4sys.server import intake as intake_module
from rl4sys.server import supervisor as supervisor_module
from rl4sys.server.command import read_server_file
from rl4sys.server.config import Limits, ServerConfig
from rl4sys.server.connection import Connection, PublishedModel
from rl4sys.server.hosted_policy import HostedPolicy
from rl4sys.server.intake import Intake
from rl4sys.server.journal import Sender
from rl4sys.server.policy_directory import open_or_create
from rl4sys.server.supervisor import Supervisor
from rl4sys.server.task import LearnerTask
from rl4sys.wire.delta import apply_delta
from tests.live import SPEC, make_trajectory


def test_invalid_device_and_newer_config_version_are_rejected(tmp_path: Path) -> None:
    assert parse(ServerConfig, {"device": "cuda:1"}).device == "cuda:1"
    with pytest.raises(ConfigError, match="device"):
        parse(ServerConfig, {"device": "cuda:\\d"})
    (tmp_path / "server.yaml").write_text("version: 99")
    with pytest.raises(ConfigError, match="the config has version 99"):
        read_server_file(tmp_path / "server.yaml")


def test_plugin_path_is_relative_to_config_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert find_plugin("mine.py", tmp_path) == str(tmp_path / "mine.py")
    assert find_plugin("some.module", tmp_path) == "some.module"
    with pytest.raises(ConfigError, match=r"yours\.py"):
        find_plugin("yours.py", tmp_path)


def test_cached_delta_belongs_to_the_requested_model(tmp_path: Path) -> None:
    live = {"lineage": "l", "algorithm": "ppo", "settings": {}, "max_staleness": 0, "spec": SPEC.to_json()}
    unused: Any = None
    policy = HostedPolicy(LearnerTask("p", ServerConfig(root=tmp_path)), {**live, "not_portable": ""}, unused, unused)
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 256, 4000).astype(np.uint8) for _ in range(3)]
    contents[1][100:], contents[2][200:] = contents[0][100:], contents[0][200:]
    held, newer, newest = (PublishedModel.of("l", n, content.tobytes(), 1) for n, content in enumerate(contents))
    for model in (newer, newest):
        client = Connection(Sender("c", 1), "peer", held=held)
        message = policy.encode_model(model, client)
        assert message.version == model.version
        assert apply_delta(held.content, message.delta.compressed) == model.content


def test_failure_to_start_learner_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: LearnerTask) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(supervisor_module, "start_learner_process", fail)

    async def start() -> None:
        with ThreadPoolExecutor(1) as executor:
            supervisor = Supervisor(LearnerTask("p", ServerConfig(root=tmp_path)), executor)
            await asyncio.wait_for(supervisor.start(), 10.0)

    with pytest.raises(RunError, match=r"could not be started.*Too many open files"):
        asyncio.run(start())


async def fill(path: Path, clients: int, max_bytes: int) -> tuple[Intake, int]:
    """Send from several clients at once; return the intake and the maximum number of queued bytes."""
    with ThreadPoolExecutor(1) as executor:
        intake = Intake(SPEC, 0, Limits(max_waiting_bytes=max_bytes), executor)
        await intake.open(path / "journal.db", lambda newest: None, lambda message: None)
        peak = 0

        async def send(number: int) -> None:
            connection = Connection(Sender(f"c{number}", 1), "peer")
            await intake.add_sender(connection.sender)
            for sequence in range(1, 6):
                await intake.receive(connection, [make_trajectory(sequence, steps=100)])
                nonlocal peak
                peak = max(peak, intake._queued_bytes)

        await asyncio.gather(*(send(number) for number in range(clients)))
        while intake._queue:
            await asyncio.sleep(0.01)
        await intake.close()
        return intake, peak


def test_intake_queue_is_bounded_with_many_clients(tmp_path: Path) -> None:
    size = len(make_trajectory(1, steps=100))
    intake, peak = asyncio.run(fill(tmp_path, clients=20, max_bytes=3 * size))
    assert intake.steps_received == 20 * 5 * 100
    assert peak <= 4 * size


def test_step_rate_history_is_pruned_without_status_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**9))
    monkeypatch.setattr(intake_module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    async def send_one_by_one() -> int:
        with ThreadPoolExecutor(1) as executor:
            intake = Intake(SPEC, 0, Limits(), executor)
            await intake.open(tmp_path / "journal.db", lambda newest: None, lambda message: None)
            connection = Connection(Sender("c", 1), "peer")
            await intake.add_sender(connection.sender)
            for sequence in range(1, 51):
                await intake.receive(connection, [make_trajectory(sequence)])
                while intake._queue:
                    await asyncio.sleep(0.001)
            await intake.close()
            return len(intake._rate)

    assert 0 < asyncio.run(send_one_by_one()) <= 12


def test_auto_buffer_size_respects_the_server_limits(tmp_path: Path) -> None:
    server = ServerConfig(root=tmp_path, limits=Limits(max_buffer_bytes=200_000))
    settings = {"algorithm": {"name": "dqn"}, "buffer": {"size": "auto"}}
    task = LearnerTask("p", server, json.dumps(SPEC.to_json()), json.dumps(settings))
    messages: list[str] = []
    run, _ = open_or_create(task, messages.append)
    size = run.config.buffer.size
    assert 100 < size < 100_000
    assert learner_cost(SPEC, run.config.learner("cpu")).buffer_bytes <= 200_000
    assert messages[0].startswith(f"buffer.size: auto selects {size:,} steps; the default of 100,000 steps needs ")
    assert messages[0].endswith("the maximum is 200.0 kB")
    assert open_or_create(task, messages.append)[0].config.buffer.size == size
    assert len(messages) == 1
