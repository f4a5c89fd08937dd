"""Parts of the server by themselves, where what they must bear is hard to bring about from outside."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl4sys.cli.serve import _read
from rl4sys.config import parse
from rl4sys.errors import ConfigError, RunError
from rl4sys.registry import find_plugin
from rl4sys.server import intake as intake_module
from rl4sys.server import supervisor as supervisor_module
from rl4sys.server.config import Limits, ServerConfig
from rl4sys.server.connection import Connection, Model
from rl4sys.server.intake import Intake
from rl4sys.server.journal import Sender
from rl4sys.server.session import Session
from rl4sys.server.supervisor import Supervisor
from rl4sys.server.task import Task
from rl4sys.wire.delta import apply_difference
from tests.live import SPEC, some_trajectory


def test_a_device_is_one_of_several_and_versions_from_the_future_are_refused(tmp_path: Path) -> None:
    assert parse(ServerConfig, {"device": "cuda:1"}).device == "cuda:1"
    with pytest.raises(ConfigError, match="device"):
        parse(ServerConfig, {"device": "cuda:\\d"})
    (tmp_path / "server.yaml").write_text("version: 99")
    with pytest.raises(ConfigError, match="version: 99"):
        _read(tmp_path / "server.yaml")


def test_plugins_are_found_beside_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert find_plugin("mine.py", tmp_path) == str(tmp_path / "mine.py")
    assert find_plugin("some.module", tmp_path) == "some.module"
    with pytest.raises(ConfigError, match=r"yours\.py"):
        find_plugin("yours.py", tmp_path)


def test_each_client_is_sent_the_difference_to_the_model_that_is_meant(tmp_path: Path) -> None:
    live = {"lineage": "l", "algorithm": "ppo", "settings": {}, "max_staleness": 0, "spec": SPEC.to_json()}
    nobody: Any = None
    session = Session(Task("p", ServerConfig(root=tmp_path)), {**live, "not_portable": ""}, nobody, nobody)
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 256, 4000).astype(np.uint8) for _ in range(3)]
    contents[1][100:], contents[2][200:] = contents[0][100:], contents[0][200:]
    held, newer, newest = (Model.of("l", n, content.tobytes(), 1) for n, content in enumerate(contents))
    for model in (newer, newest):
        client = Connection(Sender("c", 1), "peer", held=held)
        message = session.encode(model, client)
        assert message.version == model.version
        assert apply_difference(held.content, message.delta.compressed) == model.content


def test_a_worker_that_cannot_be_started_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: Task) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(supervisor_module, "start_worker", fail)

    async def start() -> None:
        with ThreadPoolExecutor(1) as executor:
            supervisor = Supervisor(Task("p", ServerConfig(root=tmp_path)), executor)
            await asyncio.wait_for(supervisor.start(), 10.0)

    with pytest.raises(RunError, match=r"could not be started.*Too many open files"):
        asyncio.run(start())


async def filled(path: Path, clients: int, most_bytes: int) -> tuple[Intake, int]:
    """An intake that as many clients sent to at once; and the most that was ever in line."""
    with ThreadPoolExecutor(1) as executor:
        intake = Intake(SPEC, 0, Limits(max_waiting_bytes=most_bytes), executor)
        await intake.open(path / "journal.db", lambda newest: None, lambda message: None)
        most = 0

        async def send(number: int) -> None:
            connection = Connection(Sender(f"c{number}", 1), "peer")
            await intake.admit(connection.sender)
            for sequence in range(1, 6):
                await intake.receive(connection, [some_trajectory(sequence, steps=100)])
                nonlocal most
                most = max(most, intake._waiting_bytes)

        await asyncio.gather(*(send(number) for number in range(clients)))
        while intake._arrivals:
            await asyncio.sleep(0.01)
        await intake.close()
        return intake, most


def test_what_waits_for_the_disk_is_bounded_however_many_wait(tmp_path: Path) -> None:
    size = len(some_trajectory(1, steps=100))
    intake, most = asyncio.run(filled(tmp_path, clients=20, most_bytes=3 * size))
    assert intake.steps_received == 20 * 5 * 100
    assert most <= 4 * size


def test_what_arrived_when_is_forgotten_though_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**9))
    monkeypatch.setattr(intake_module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    async def send_one_by_one() -> int:
        with ThreadPoolExecutor(1) as executor:
            intake = Intake(SPEC, 0, Limits(), executor)
            await intake.open(tmp_path / "journal.db", lambda newest: None, lambda message: None)
            connection = Connection(Sender("c", 1), "peer")
            await intake.admit(connection.sender)
            for sequence in range(1, 51):
                await intake.receive(connection, [some_trajectory(sequence)])
                while intake._arrivals:
                    await asyncio.sleep(0.001)
            await intake.close()
            return len(intake._rate)

    assert 0 < asyncio.run(send_one_by_one()) <= 12
