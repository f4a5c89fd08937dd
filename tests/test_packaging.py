"""What is installed, with a compiler and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def build_wheel(target: Path, **environment: str) -> tuple[list[str], str]:
    """Build from a copy of what git would clone; the names in the wheel and what the build said."""
    source = target / "source"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-v", "-w", str(target)]
    done = subprocess.run(
        command, cwd=source, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    with zipfile.ZipFile(next(target.glob("*.whl"))) as wheel:
        return wheel.namelist(), done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_without_a_compiler_the_install_succeeds_and_says_so(tmp_path: Path) -> None:
    names, said = build_wheel(tmp_path, CXX="/no/such/compiler")
    assert "the native core could not be compiled; installed with the numpy form" in said
    assert not [name for name in names if name.startswith("rl4sys/_core.") and not name.endswith(".pyi")]
    assert "rl4sys/learner.py" in names
    assert "rl4sys/configs/experiments/ppo_cartpole.yaml" in names
    assert next(tmp_path.glob("*.whl")).name.endswith("-none-any.whl")


@pytest.mark.timeout(600)
def test_the_base_install_is_light(tmp_path: Path) -> None:
    build_wheel(tmp_path, CXX="/no/such/compiler")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        required = [line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Requires-Dist:")]
    base = {line.split()[1].split(">")[0] for line in required if "extra ==" not in line}
    assert base == {"numpy", "grpcio", "protobuf", "pydantic", "pyyaml"}


def test_the_table_of_algorithms_is_what_trying_them_gives() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/algorithm_table.py", "--check"], check=True)


def test_the_config_reference_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/config_reference.py", "--check"], check=True)


def test_one_version_is_said_everywhere() -> None:
    (said,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for name in ("CMakeLists.txt", "cpp/CMakeLists.txt"):
        assert f"project(rl4sys VERSION {said} LANGUAGES CXX)" in (ROOT / name).read_text(), name
