"""Builds of independent projects with the installed C++ client."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cpp.conftest import BUILD, ROOT

CONSUMER = ROOT / "cpp" / "tests" / "consumer"


def run(*command: object, **environment: str) -> str:
    arguments = [str(argument) for argument in command]
    return subprocess.run(
        arguments, check=True, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    ).stdout


@pytest.fixture(scope="module")
def prefix(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "system.json"
    server = {"address": "127.0.0.1:9", "timeout_seconds": 0.01}
    path.write_text(json.dumps({"observation": 3, "action": 2, "server": server}))
    return path


def test_find_package_consumer_builds_and_runs(prefix: Path, tmp_path: Path, config: Path) -> None:
    run("cmake", "-S", CONSUMER, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert "act 0, no model has arrived yet" in run(tmp_path / "build" / "consumer", config)


def test_pkg_config_consumer_builds_and_runs(prefix: Path, tmp_path: Path, config: Path) -> None:
    libraries = next(prefix.glob("lib*/**/rl4sys.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "rl4sys", PKG_CONFIG_PATH=str(libraries)).split()
    run("g++", "-std=c++20", CONSUMER / "consumer.cpp", *flags, "-o", tmp_path / "consumer")
    assert "act 0" in run(tmp_path / "consumer", config, LD_LIBRARY_PATH=str(libraries.parent))


def test_only_public_headers_are_installed(prefix: Path) -> None:
    headers = prefix / "include"
    assert sorted(str(path.relative_to(headers)) for path in headers.rglob("*.hpp")) == [
        "rl4sys/agent.hpp",
        "rl4sys/errors.hpp",
        "rl4sys/export.hpp",
    ]


def test_only_public_symbols_are_exported(prefix: Path) -> None:
    library = next(prefix.glob("lib*/**/librl4sys_client.so"))
    symbols = run("nm", "-DC", "--defined-only", library).splitlines()
    ours = [line for line in symbols if "rl4sys::" in line]
    assert any("RL4SysAgent::requestForAction" in line for line in ours)
    assert not [line for line in ours if "rl4sys::client::" in line or "rl4sys::v1::" in line]
