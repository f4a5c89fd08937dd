"""Limits, order and persistence of the outbox and its spool."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.client.outbox import Outbox
from rl4sys.client.recording import EncodedTrajectory, Recording
from rl4sys.client.spool import Spool, abandoned_spools

SIZE = 1000
STEPS = 10


@pytest.fixture(autouse=True)
def _spools_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    spools: list[Spool] = []
    initialize = Spool.__init__

    def register(spool: Spool, *arguments: Any) -> None:
        spools.append(spool)
        initialize(spool, *arguments)

    monkeypatch.setattr(Spool, "__init__", register)
    yield
    for spool in spools:
        spool.close()


def spool_in(directory: Path, max_bytes: int = 10**9) -> Spool:
    return Spool(directory / "home" / "0001", max_bytes, b"hello")


def recording(sequence: int, size: int = SIZE) -> Recording:
    rewards = np.zeros(STEPS, np.float32)
    columns = {"reward": rewards, "row": np.zeros(size - rewards.nbytes, np.uint8)}
    return Recording(columns, version=0, episode=0, offset=0, sequence=sequence)


def encode(recording: Recording) -> bytes:
    return bytes([recording.sequence % 256]) * recording.size


def put(outbox: Outbox, *sequences: int, size: int = SIZE) -> None:
    for sequence in sequences:
        outbox.put(recording(sequence, size))
        outbox.encode_incoming()


def drain(outbox: Outbox, max_bytes: int = 2500) -> list[int]:
    """Send and acknowledge all trajectories. Returns the sequences in the order of sending."""
    sequences: list[int] = []
    while trajectories := outbox.next_batch(max_bytes):
        for trajectory in trajectories:
            assert trajectory.content == bytes([trajectory.sequence % 256]) * len(trajectory.content)
        sequences += [trajectory.sequence for trajectory in trajectories]
        outbox.acknowledge(sequences[-1])
    return sequences


def test_outbox_below_memory_limit_uses_no_disk(tmp_path: Path) -> None:
    outbox = Outbox(10 * SIZE, spool_in(tmp_path), encode)
    put(outbox, *range(1, 11))
    assert (outbox.waiting_steps, outbox.memory_bytes, outbox.spool_bytes) == (100, 10 * SIZE, 0)
    assert drain(outbox) == list(range(1, 11))
    assert (outbox.waiting_steps, outbox.acknowledged_steps, outbox.memory_bytes) == (0, 100, 0)
    assert not list(tmp_path.iterdir())


def test_batch_respects_byte_limit_but_has_at_least_one_trajectory(tmp_path: Path) -> None:
    outbox = Outbox(10**6, spool_in(tmp_path), encode)
    put(outbox, 1, 2, 3, 4)
    assert [p.sequence for p in outbox.next_batch(2500)] == [1, 2]
    assert [p.sequence for p in outbox.next_batch(10)] == [3]
    assert outbox.unsent_count == 1


def test_rewind_resends_unacknowledged_trajectories(tmp_path: Path) -> None:
    outbox = Outbox(10**6, spool_in(tmp_path), encode)
    put(outbox, 1, 2, 3, 4)
    outbox.next_batch(10**6)
    outbox.acknowledge(2)
    outbox.rewind()
    assert drain(outbox) == [3, 4]


def test_outbox_overflow_to_disk_keeps_order(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 8 * 4 * (SIZE + 20)), encode)
    put(outbox, *range(1, 21))
    assert outbox.memory_bytes == 3 * SIZE
    assert outbox.spool_bytes == 17 * (SIZE + 20)
    assert (outbox.waiting_steps, outbox.dropped_steps) == (200, 0)
    assert len(list((tmp_path / "home" / "0001").glob("*.segment"))) == 5
    outbox.next_batch(SIZE)
    outbox.acknowledge(1)
    put(outbox, 21)
    assert drain(outbox) == list(range(2, 22))
    assert (outbox.waiting_steps, outbox.dropped_steps, outbox.spool_bytes) == (0, 0, 0)
    outbox.persist()
    assert not list((tmp_path / "home").iterdir())


def test_zero_memory_limit_loses_no_trajectories(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path), encode)
    put(outbox, *range(1, 8))
    assert drain(outbox) == list(range(1, 8))


def test_oldest_trajectory_is_dropped_when_memory_and_disk_are_full(tmp_path: Path) -> None:
    outbox = Outbox(2 * SIZE, spool_in(tmp_path, 3 * (SIZE + 20)), encode)
    put(outbox, *range(1, 31))
    kept = drain(outbox)
    assert kept == list(range(31 - len(kept), 31))
    assert len(kept) >= 3, "the disk has room for three trajectories"
    assert outbox.dropped_steps == STEPS * (30 - len(kept))
    assert outbox.waiting_steps == 0


def test_dropped_steps_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 0), encode)
    put(outbox, 1, 2, 3)
    assert caplog.records == [], "nothing is dropped yet"
    put(outbox, *range(4, 31))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["dropping the oldest steps"]


def test_memory_limit_applies_without_spool(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 0), encode)
    put(outbox, *range(1, 11))
    assert drain(outbox) == [8, 9, 10]
    assert outbox.dropped_steps == 70
    assert not list(tmp_path.iterdir())


def test_trajectory_above_all_limits_replaces_all_others(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, SIZE), encode)
    put(outbox, 1, 2)
    put(outbox, 3, size=10 * SIZE)
    assert drain(outbox) == [3]


def test_incoming_queue_is_bounded(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path), lambda recording: b"x" * SIZE)
    for sequence in range(1, 11):
        outbox.put(recording(sequence, 4 * 2**20 // 3))
    assert (outbox.waiting_steps, outbox.dropped_steps) == (30, 70)
    assert [encoded.sequence for encoded in outbox.encode_incoming()] == [8, 9, 10]


def test_encoding_failure_drops_only_one_trajectory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail_once(recording: Recording) -> bytes:
        if recording.sequence == 1:
            raise RuntimeError("no")
        return encode(recording)

    outbox = Outbox(10**6, spool_in(tmp_path), fail_once)
    put(outbox, 1, 2)
    assert drain(outbox) == [2]
    assert outbox.dropped_steps == STEPS
    assert "could not be encoded" in caplog.text


@pytest.mark.parametrize("fault", ["not a directory", "disk full"])
def test_unwritable_spool_drops_oldest_trajectories_and_logs_once(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "not a directory":
        (tmp_path / "home").write_text("not a directory")
        spool = spool_in(tmp_path)
    else:
        if not Path("/dev/full").exists():
            pytest.skip("needs /dev/full")
        spool = spool_in(tmp_path)
        (tmp_path / "home" / "0001").mkdir(parents=True)
        for sequence in range(1, 11):
            (tmp_path / "home" / "0001" / f"{sequence:020d}.segment").symlink_to("/dev/full")
    outbox = Outbox(3 * SIZE, spool, encode)
    put(outbox, *range(1, 11))
    assert outbox.dropped_steps == 70
    assert drain(outbox) == [8, 9, 10]
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "cannot be written to disk" in caplog.text


def test_unwritable_disk_keeps_trajectories_already_stored(tmp_path: Path) -> None:
    outbox = Outbox(2 * SIZE, spool_in(tmp_path), encode)
    put(outbox, *range(1, 6))
    home = tmp_path / "home" / "0001"
    home.chmod(0o500)
    if os.access(home, os.W_OK):
        pytest.skip("this user can write everywhere")
    outbox._spool.close_segment()
    put(outbox, 6)
    home.chmod(0o700)
    assert drain(outbox) == [1, 2, 3, 4, 5]
    assert outbox.dropped_steps == STEPS


def test_next_process_sends_persisted_trajectories(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 10**6), encode)
    put(outbox, *range(1, 11))
    outbox.next_batch(SIZE)
    assert not list(abandoned_spools(tmp_path / "home")), "the process that owns the spool still runs"
    outbox.persist()
    put(outbox, 11)
    assert outbox.dropped_steps == STEPS, "later recordings are counted as dropped"

    (left,) = abandoned_spools(tmp_path / "home")
    assert left.hello == b"hello"
    assert not list(abandoned_spools(tmp_path / "home")), "another sender holds the lock of the spool"
    successor = Outbox(2 * SIZE, left, encode)
    assert successor.waiting_steps == 100
    assert drain(successor) == list(range(1, 11))
    successor.persist()
    assert not list((tmp_path / "home").iterdir())


def test_abandoned_spool_is_kept_after_lost_connections(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path), encode)
    put(outbox, 1, 2, 3)
    outbox.persist()
    for _ in range(2):
        (left_spool,) = abandoned_spools(tmp_path / "home")
        successor = Outbox(10 * SIZE, left_spool, encode)
        assert len(successor.next_batch(10 * SIZE)) == 3
        successor.persist()
        assert (successor.waiting_steps, successor.dropped_steps) == (3 * STEPS, 0)
    (left_spool,) = abandoned_spools(tmp_path / "home")
    assert drain(Outbox(10 * SIZE, left_spool, encode)) == [1, 2, 3]


def test_deleted_segment_loses_only_its_steps(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.append(EncodedTrajectory(1, STEPS, b"lost"))
    next(spool.directory.glob("*.segment")).unlink()
    assert spool.read_next() is None
    spool.append(EncodedTrajectory(2, STEPS, b"kept"))
    assert spool.read_next() == EncodedTrajectory(2, STEPS, b"kept")
    assert spool.lost_steps == STEPS


def test_failed_hello_write_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spool_in(tmp_path)

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space"):
            spool.append(EncodedTrajectory(1, STEPS, b"x"))
    spool.append(EncodedTrajectory(1, STEPS, b"x"))
    assert (spool.directory / "hello").read_bytes() == b"hello"


def test_trajectories_read_from_disk_are_not_persisted_twice(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 10**6), encode)
    put(outbox, *range(1, 9))
    outbox.next_batch(10 * SIZE)
    outbox.acknowledge(3)
    outbox.next_batch(10 * SIZE)
    outbox.acknowledge(6)
    put(outbox, 9)
    outbox.persist()
    (left,) = abandoned_spools(tmp_path / "home")
    assert drain(Outbox(10**6, left, encode))[-3:] == [7, 8, 9]
    assert left.lost_steps == 0


def test_persist_keeps_newest_trajectories_that_fit(tmp_path: Path) -> None:
    outbox = Outbox(10 * SIZE, spool_in(tmp_path, 3 * (SIZE + 20)), encode)
    put(outbox, *range(1, 9))
    outbox.persist()
    assert outbox.dropped_steps == 50
    (left,) = abandoned_spools(tmp_path / "home")
    assert drain(Outbox(10**6, left, encode)) == [6, 7, 8]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "removed"])
def test_damaged_segment_loses_only_its_steps(damage: str, tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path, 8 * 2 * (SIZE + 20)), encode)
    put(outbox, *range(1, 9))
    outbox.persist()
    first, *others = sorted((tmp_path / "home" / "0001").glob("*.segment"))
    assert others
    content = first.read_bytes()
    if damage == "flipped":
        first.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    elif damage == "truncated":
        first.write_bytes(content[:-5])
    elif damage == "emptied":
        first.write_bytes(b"")
    else:
        first.unlink()
    (left,) = abandoned_spools(tmp_path / "home")
    successor = Outbox(10**6, left, encode)
    sequences = drain(successor)
    assert sequences == list(range(9 - len(sequences), 9)) or sequences[0] == 1
    assert len(sequences) >= 5
    assert successor.waiting_steps == 0
    successor.persist()
    assert not list((tmp_path / "home").iterdir())


def test_spool_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    (public / "home").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    outbox = Outbox(SIZE, spool_in(public), encode)
    put(outbox, 1, 2)
    assert "belongs to another user" in caplog.text
    assert outbox.dropped_steps == STEPS


def test_spool_of_another_user_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    outbox = Outbox(0, spool_in(public), encode)
    put(outbox, 1, 2)
    outbox.persist()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert not list(abandoned_spools(public / "home"))
    monkeypatch.setattr(os, "getuid", lambda: uid)
    (left,) = abandoned_spools(public / "home")
    assert drain(Outbox(10 * SIZE, left, encode)) == [1, 2]


def test_acknowledgement_covers_trajectories_read_from_disk_later(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path), encode)
    put(outbox, *range(1, 21))
    outbox.persist()
    (left,) = abandoned_spools(tmp_path / "home")
    successor = Outbox(3 * SIZE, left, encode)
    successor.acknowledge(17)
    assert successor.acknowledged_steps == 17 * STEPS
    assert [trajectory.sequence for trajectory in successor.next_batch(10 * SIZE)] == [18, 19, 20]
