"""Fixtures that create scripted servers and agents, and close them after each test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl4sys.client import RL4SysAgent
from tests.client.scripted import ScriptedServer


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    """Check that closed agents leave no threads running."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("rl4sys-")]
    assert not left


@pytest.fixture
def make_server() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def make(*arguments: Any, **options: Any) -> ScriptedServer:
        servers.append(ScriptedServer(*arguments, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def server(make_server: Callable[..., ScriptedServer]) -> ScriptedServer:
    """Server that welcomes every client, serves version 1 and acknowledges all trajectories."""
    return make_server()


@pytest.fixture
def make_agent(make_server: Callable[..., ScriptedServer], tmp_path: Path) -> Iterator[Callable[..., RL4SysAgent]]:
    """Factory of agents with observations of size 3, four discrete actions and a spool in a temporary directory."""
    agents: list[RL4SysAgent] = []

    def make(where: ScriptedServer | str, *, arguments: dict[str, Any] | None = None, **settings: Any) -> RL4SysAgent:
        address = where if isinstance(where, str) else where.address
        content: dict[str, Any] = {
            "client_id": "tester",
            "observation": 3,
            "action": 4,
            "algorithm": {"name": "ppo"},
            "server": {"address": address, "timeout_seconds": 10.0, "act_timeout_seconds": 60.0},
            "outbox": {"spool": str(tmp_path / "spool")},
        }
        for name, value in settings.items():
            content[name] = {**content[name], **value} if isinstance(content.get(name), dict) else value
        agents.append(RL4SysAgent(content, **(arguments or {})))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()
