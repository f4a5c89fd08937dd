"""Compatibility of the spool files of the Python and the C++ client."""

from __future__ import annotations

import random
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rl4sys.client.outbox import Outbox
from rl4sys.client.recording import EncodedTrajectory, Recording
from rl4sys.client.spool import Spool, abandoned_spools
from tests.cpp.conftest import Binary

COUNT = 60
MEMORY_BYTES, SPOOL_BYTES = 5_000, 80_000
NAME = "00000000000000c3"

Tool = Callable[..., str]


@pytest.fixture
def tool(binary: Binary) -> Tool:
    def run(*arguments: object) -> str:
        command = [str(binary("spool_tool")), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    return run


def encoded(sequence: int) -> EncodedTrajectory:
    """Return the trajectory that the C++ program spool_tool writes for this sequence number."""
    content = bytes((sequence + i) % 256 for i in range(sequence * 37 % 1500))
    return EncodedTrajectory(sequence, 1 + sequence % 7, content)


def encode(recording: Recording) -> bytes:
    return encoded(recording.sequence).content


def write_spool_by_python(directory: Path, *, persist: bool) -> Outbox:
    spool = Spool(directory, SPOOL_BYTES, b"hello from Python")
    outbox = Outbox(MEMORY_BYTES, spool, encode)
    for sequence in range(1, COUNT + 1):
        rewards = np.zeros(encoded(sequence).steps, np.float32)
        outbox.put(Recording({"reward": rewards}, version=0, episode=0, offset=0, sequence=sequence))
        outbox.encode_incoming()
    if persist:
        outbox.persist()
    else:
        outbox._spool.close()
    return outbox


def write_spool_by_cpp(tool: Tool, directory: Path, end: str) -> None:
    steps = sum(encoded(sequence).steps for sequence in range(1, COUNT + 1))
    assert tool("leave", directory, MEMORY_BYTES, SPOOL_BYTES, COUNT, end) == f"{steps} steps\n"


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "hello"}


def read_spools_by_python(home: Path) -> list[str]:
    """Read all abandoned spools; returns the same lines as `spool_tool take`."""
    lines: list[str] = []
    for spool in abandoned_spools(home):
        lines += [f"hello {spool.hello.decode()}", f"waiting {spool.waiting_steps}"]
        while (found := spool.read_next()) is not None:
            lines.append(described(found))
        lines.append(f"lost {spool.lost_steps}")
        spool.remove_up_to(2**64)
        spool.close()
    return lines


def described(found: EncodedTrajectory) -> str:
    return f"trajectory {found.sequence} {found.steps} {len(found.content)} {zlib.crc32(found.content)}"


@pytest.mark.parametrize("end", ["persist", "die"])
def test_cpp_and_python_clients_write_identical_spool_files(end: str, tool: Tool, tmp_path: Path) -> None:
    write_spool_by_cpp(tool, tmp_path / "cpp" / NAME, end)
    write_spool_by_python(tmp_path / "python" / NAME, persist=end == "persist")
    left = files(tmp_path / "cpp" / NAME)
    assert left == files(tmp_path / "python" / NAME)
    assert len(left) > 3, "expected several segments and the lock"


def test_python_client_sends_spool_of_cpp_client(tool: Tool, tmp_path: Path) -> None:
    write_spool_by_cpp(tool, tmp_path / "home" / NAME, "persist")
    (spool,) = abandoned_spools(tmp_path / "home")
    assert spool.hello == b"hello from C++"
    outbox = Outbox(MEMORY_BYTES, spool, encode)
    received: list[EncodedTrajectory] = []
    while batch := outbox.next_batch(3000):
        received += batch
        outbox.acknowledge(batch[-1].sequence)
    assert received == [encoded(sequence) for sequence in range(1, COUNT + 1)]
    assert (outbox.waiting_steps, outbox.dropped_steps) == (0, 0)
    outbox.persist()
    assert not list((tmp_path / "home").iterdir())


def test_cpp_client_sends_spool_of_python_client(tool: Tool, tmp_path: Path) -> None:
    write_spool_by_python(tmp_path / "home" / NAME, persist=True)
    first, *trajectories, lost = (
        line for line in tool("take", tmp_path / "home").splitlines() if "waiting" not in line
    )
    assert (first, lost) == ("hello hello from Python", "lost 0")
    assert trajectories == [described(encoded(sequence)) for sequence in range(1, COUNT + 1)]
    assert not list((tmp_path / "home").iterdir())


def test_spool_of_a_running_client_is_not_opened(binary: Binary, tool: Tool, tmp_path: Path) -> None:
    mine = Spool(tmp_path / "python" / NAME, SPOOL_BYTES, b"hello")
    mine.append(encoded(1))
    assert tool("take", tmp_path / "python") == ""
    mine.close()
    assert tool("take", tmp_path / "python") != ""

    theirs = [str(binary("spool_tool")), "leave", str(tmp_path / "cpp" / NAME), "0", str(SPOOL_BYTES), "3", "stay"]
    with subprocess.Popen(theirs, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout is not None
        assert living.stdin is not None
        assert living.stdout.readline()
        assert read_spools_by_python(tmp_path / "cpp") == []
        living.stdin.close()
    assert read_spools_by_python(tmp_path / "cpp") != []


def test_cpp_and_python_clients_read_damaged_spools_identically(tool: Tool, tmp_path: Path) -> None:
    write_spool_by_python(tmp_path / "whole" / NAME, persist=True)
    lost = 0
    for seed in range(40):
        mine, theirs = tmp_path / f"python{seed}", tmp_path / f"cpp{seed}"
        shutil.copytree(tmp_path / "whole", mine)
        damage(mine / NAME, random.Random(seed))
        shutil.copytree(mine, theirs)
        lines = read_spools_by_python(mine)
        assert tool("take", theirs).splitlines() == lines
        lost += COUNT - sum(line.startswith("trajectory") for line in lines)
    assert COUNT < lost < 40 * COUNT, "expected some but not all trajectories to be lost"


def damage(directory: Path, chance: random.Random) -> None:
    """Change random bytes of the segment files or truncate the files; damage headers most often."""
    for path in sorted(directory.glob("*.segment")):
        content = bytearray(path.read_bytes())
        kind = chance.randrange(4)
        if kind == 0:
            content[chance.randrange(20)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[chance.randrange(len(content))] = chance.randrange(256)
        elif kind == 2:
            del content[chance.randrange(len(content)) :]
        path.write_bytes(content)
