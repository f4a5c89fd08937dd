"""A Python client sends what a C++ one left on disk, and the other way round."""

from __future__ import annotations

import random
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rl4sys.client.outbox import Fresh, Outbox
from rl4sys.client.spool import Parcel, Spool, dead_spools
from tests.cpp.conftest import Binary

COUNT = 60
MEMORY_BYTES, SPOOL_BYTES = 5_000, 80_000
NAME = "00000000000000c3"

Tool = Callable[..., str]


@pytest.fixture
def tool(binary: Binary) -> Tool:
    def run(*arguments: object) -> str:
        words = [str(binary("spool_tool")), *map(str, arguments)]
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout

    return run


def parcel(sequence: int) -> Parcel:
    """As the tool makes them."""
    content = bytes((sequence + i) % 256 for i in range(sequence * 37 % 1500))
    return Parcel(sequence, 1 + sequence % 7, content)


def left_by_python(directory: Path, *, park: bool) -> Outbox:
    outbox = Outbox(MEMORY_BYTES, Spool(directory, SPOOL_BYTES, b"hello from Python"))
    for sequence in range(1, COUNT + 1):
        sent = parcel(sequence)
        outbox.put(Fresh(sequence, sent.steps, len(sent.content), lambda sent=sent: sent.content))  # type: ignore[misc]
        outbox.settle()
    if park:
        outbox.park()
    else:
        outbox._spool.close()
    return outbox


def left_by_cpp(tool: Tool, directory: Path, end: str) -> None:
    steps = sum(parcel(sequence).steps for sequence in range(1, COUNT + 1))
    assert tool("leave", directory, MEMORY_BYTES, SPOOL_BYTES, COUNT, end) == f"{steps} steps\n"


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "hello"}


def taken_by_python(home: Path) -> list[str]:
    """What the tool prints when it takes them."""
    lines: list[str] = []
    for spool in dead_spools(home):
        lines += [f"hello {spool.hello.decode()}", f"waiting {spool.waiting_steps}"]
        while (found := spool.next()) is not None:
            lines.append(described(found))
        lines.append(f"lost {spool.lost_steps}")
        spool.forget(2**64)
        spool.close()
    return lines


def described(found: Parcel) -> str:
    return f"parcel {found.sequence} {found.steps} {len(found.content)} {zlib.crc32(found.content)}"


@pytest.mark.parametrize("end", ["park", "die"])
def test_both_leave_the_same_files(end: str, tool: Tool, tmp_path: Path) -> None:
    left_by_cpp(tool, tmp_path / "cpp" / NAME, end)
    left_by_python(tmp_path / "python" / NAME, park=end == "park")
    left = files(tmp_path / "cpp" / NAME)
    assert left == files(tmp_path / "python" / NAME)
    assert len(left) > 3, "several segments and the lock"


def test_python_sends_what_cpp_left(tool: Tool, tmp_path: Path) -> None:
    left_by_cpp(tool, tmp_path / "home" / NAME, "park")
    (spool,) = dead_spools(tmp_path / "home")
    assert spool.hello == b"hello from C++"
    outbox = Outbox(MEMORY_BYTES, spool)
    received: list[Parcel] = []
    while batch := outbox.batch(3000):
        received += batch
        outbox.acknowledge(batch[-1].sequence)
    assert received == [parcel(sequence) for sequence in range(1, COUNT + 1)]
    assert (outbox.waiting_steps, outbox.dropped_steps) == (0, 0)
    outbox.park()
    assert not list((tmp_path / "home").iterdir())


def test_cpp_sends_what_python_left(tool: Tool, tmp_path: Path) -> None:
    left_by_python(tmp_path / "home" / NAME, park=True)
    first, *parcels, lost = (line for line in tool("take", tmp_path / "home").splitlines() if "waiting" not in line)
    assert (first, lost) == ("hello hello from Python", "lost 0")
    assert parcels == [described(parcel(sequence)) for sequence in range(1, COUNT + 1)]
    assert not list((tmp_path / "home").iterdir())


def test_neither_takes_what_the_other_still_uses(binary: Binary, tool: Tool, tmp_path: Path) -> None:
    mine = Spool(tmp_path / "python" / NAME, SPOOL_BYTES, b"hello")
    mine.append(parcel(1))
    assert tool("take", tmp_path / "python") == ""
    mine.close()
    assert tool("take", tmp_path / "python") != ""

    theirs = [str(binary("spool_tool")), "leave", str(tmp_path / "cpp" / NAME), "0", str(SPOOL_BYTES), "3", "stay"]
    with subprocess.Popen(theirs, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout is not None
        assert living.stdin is not None
        assert living.stdout.readline()
        assert taken_by_python(tmp_path / "cpp") == []
        living.stdin.close()
    assert taken_by_python(tmp_path / "cpp") != []


def test_both_find_the_same_in_what_is_damaged(tool: Tool, tmp_path: Path) -> None:
    left_by_python(tmp_path / "whole" / NAME, park=True)
    lost = 0
    for seed in range(40):
        mine, theirs = tmp_path / f"python{seed}", tmp_path / f"cpp{seed}"
        shutil.copytree(tmp_path / "whole", mine)
        damage(mine / NAME, random.Random(seed))
        shutil.copytree(mine, theirs)
        lines = taken_by_python(mine)
        assert tool("take", theirs).splitlines() == lines
        lost += COUNT - sum(line.startswith("parcel") for line in lines)
    assert COUNT < lost < 40 * COUNT, "some of it, not all"


def damage(directory: Path, chance: random.Random) -> None:
    """Headers more than contents, and some files cut off."""
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
