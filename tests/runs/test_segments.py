"""Tests of segments: immutable data that is written once and shared by checkpoints."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Demand
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.errors import CheckpointError, RunError
from rl4sys.runs import checkpoint
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.files import link_or_copy
from rl4sys.runs.state_tree import split_state
from rl4sys.segments import Segment
from rl4sys.trajectory import Trajectory

from ..buffers.steps import trajectory


def replay(size: int) -> Replay:
    return Replay(UniformConfig(type="uniform", size=size), Demand(learning_starts=10**9))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all written files in bytes."""
    sizes: list[int] = []
    write = checkpoint.write_synced

    def count(path: Path, content: bytes) -> None:
        sizes.append(len(content))
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_synced", count)
    return sizes


def lander_trajectory(first: int, steps: int, episode: int, offset: int, end: str) -> Trajectory:
    """Return a trajectory with observations of the size of LunarLander."""
    plain = trajectory(first, steps, episode=episode, offset=offset, end=end)
    columns = {name: column for name, column in plain.columns.items() if not name.startswith("obs.")}
    columns["obs.state"] = np.repeat(plain.columns["obs.state"], 8, axis=1)
    return replace(plain, columns=columns)


def test_many_checkpoints_write_each_step_about_once(tmp_path: Path, written: list[int]) -> None:
    buffer, store, number, saves = replay(100_000), CheckpointStore(tmp_path), 0, 120
    for save in range(saves):
        # Two environments with episodes of 500 steps.
        for system in (0, 1):
            buffer.add(lander_trajectory(number, 500, number // 500 * 2 + system, 0, "terminated"), 0)
        number += 500
        store.save(save, {"buffer": buffer.state()}, None)
    row = sum(buffer._ring.column(name, np.arange(1)).nbytes for name in buffer._ring.names()) + 8 * 4
    whole = sum(min(1000 * (save + 1), 100_000) for save in range(saves))
    assert sum(written) < 2 * row * 1000 * saves < row * whole / 25
    other = replay(100_000)
    other.restore(store.load().state["buffer"])
    numbers = np.arange(20_000, 120_000)
    np.testing.assert_array_equal(other._ring.column("action", numbers), buffer._ring.column("action", numbers))


def test_unused_segments_are_deleted(tmp_path: Path) -> None:
    buffer, store = replay(100), CheckpointStore(tmp_path, keep=2)
    for save in range(20):
        buffer.add(trajectory(100 * save, 64, episode=save), version=0)
        store.save(save, {"buffer": buffer.state()}, None, best=save == 3)
    names = {path.name for path in tmp_path.glob("*/segments/*")}
    kept = {"step_000000000003", "step_000000000018", "step_000000000019", "latest", "best"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert len(names) < 3 * 9
    for name in ("best", "latest", "step_000000000018"):
        replay(100).restore(store.load(name).state["buffer"])


def save_twice(store: CheckpointStore) -> Replay:
    buffer = replay(100)
    for step in (1, 2):
        buffer.add(trajectory(50 * step, 50, episode=step), version=0)
        store.save(step, {"buffer": buffer.state()}, None)
    return buffer


def test_checkpoint_with_shared_segments_can_be_moved(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    save_twice(store)
    first, second = ({p.stat().st_ino for p in (tmp_path / "run").glob(f"step_*{n}/segments/*")} for n in (1, 2))
    assert first
    assert first < second
    (tmp_path / "other").mkdir()
    (tmp_path / "run/step_000000000002").rename(tmp_path / "other/step_000000000002")
    replay(100).restore(CheckpointStore(tmp_path / "other").load().state["buffer"])


def test_segments_are_copied_if_links_are_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    save_twice(CheckpointStore(tmp_path))
    assert len({p.stat().st_ino for p in tmp_path.glob("step_*/segments/*")}) == 3 + 6
    (tmp_path / "a").write_bytes(b"content")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"content"


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_checkpoint_with_corrupt_segment_is_skipped(tmp_path: Path, how: str) -> None:
    store = CheckpointStore(tmp_path)
    save_twice(store)
    new = {p.name for p in tmp_path.glob("step_*2/segments/*")} - {p.name for p in tmp_path.glob("step_*1/segments/*")}
    damaged = tmp_path / "step_000000000002/segments" / min(new)
    if how == "removed":
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    found = store.load()
    assert found.name == "step_000000000001"
    assert "checkpoint step_000000000002 is damaged" in found.passed_over[0]
    # Save the same steps again. The corrupt file with their digest must not be reused.
    buffer = replay(100)
    buffer.restore(found.state["buffer"])
    buffer.add(trajectory(100, 50, episode=2), version=0)
    store.save(3, {"buffer": buffer.state()}, None)
    assert store.load().name == "step_000000000003"


def test_failed_segment_write_keeps_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, write, calls = CheckpointStore(tmp_path), checkpoint.write_synced, 0
    buffer = save_twice(store)
    expected = split_state(buffer.state())[1]["/ring/newest/action"].tolist()

    def fail(path: Path, content: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_synced", fail)
    buffer.add(trajectory(900, 90, episode=3), version=0)
    with pytest.raises(RunError, match="No space left on device; earlier checkpoints are unchanged"):
        store.save(3, {"buffer": buffer.state()}, None)
    monkeypatch.undo()
    other = replay(100)
    other.restore(store.load().state["buffer"])
    assert split_state(other.state())[1]["/ring/newest/action"].tolist() == expected
    store.save(3, {"buffer": buffer.state()}, None)
    assert store.load().name == "step_000000000003", "leftovers must not prevent the next save"


def test_saved_segment_is_not_read_again(tmp_path: Path) -> None:
    reads = 0

    def read() -> dict[str, np.ndarray]:
        nonlocal reads
        reads += 1
        return {"a": np.arange(3)}

    store, segment = CheckpointStore(tmp_path), Segment(read)
    for step in range(4):
        store.save(step, {"segment": segment, "again": segment}, None)
    assert reads == 2, "once for each occurrence in the first checkpoint"
    found = store.load().state
    assert found["segment"].read()["a"].tolist() == found["again"].read()["a"].tolist() == [0, 1, 2]


def test_checkpoint_of_old_format_is_rejected(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"a": 1}, None)
    manifest = tmp_path / "step_000000000001/manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(
        CheckpointError,
        match="has format 1, but this version of rl4sys reads format 2; use the version of rl4sys that wrote the",
    ):
        store.load()
