"""Fixtures that run a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import LiveServer, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Server shared by all tests that leave it running; each test uses its own policies."""
    with running_server(tmp_path_factory.mktemp("live"), "--metrics-port", "0") as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LiveServer]:
    """Server of one test, which may kill or stop it."""
    with running_server(tmp_path / "live") as running:
        yield running
