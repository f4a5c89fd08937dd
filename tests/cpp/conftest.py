"""Fixtures that build the C++ client once for all tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cpp"

Binary = Callable[[str], Path]


@pytest.fixture(scope="session")
def built() -> Path:
    """Build directory, shared with `make cpp`; only outdated files are rebuilt."""
    if shutil.which("cmake") is None or shutil.which("grpc_cpp_plugin") is None:
        pytest.skip("the libraries of the C++ client are not installed; run make cpp")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        # Parallel test processes share the build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for arguments in (
            ["-S", str(ROOT / "cpp"), "-B", str(BUILD)],
            ["--build", str(BUILD), "-j", str(os.cpu_count())],
        ):
            subprocess.run(["cmake", *arguments], check=True, capture_output=True, timeout=1500)
    return BUILD


@pytest.fixture(scope="session")
def binary(built: Path) -> Binary:
    """Return a function that finds a program of the build."""

    def find(name: str) -> Path:
        places = (built / "tests" / name, built / "examples" / "lunar_lander" / name, built / "benchmarks" / name)
        return next(place for place in places if place.is_file())

    return find
