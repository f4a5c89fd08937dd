"""What waits for the server stays in bounds, in order, and on disk if it must."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl4sys.client.outbox import Fresh, Outbox
from rl4sys.client.spool import Parcel, Spool, dead_spools

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


def put(outbox: Outbox, *sequences: int, size: int = SIZE) -> None:
    for sequence in sequences:
        outbox.put(Fresh(sequence, STEPS, size, lambda sequence=sequence: bytes([sequence % 256]) * size))  # type: ignore[misc]
        outbox.settle()


def drain(outbox: Outbox, most_bytes: int = 2500) -> list[int]:
    """Send and acknowledge everything; the sequences in the order they came."""
    sequences: list[int] = []
    while parcels := outbox.batch(most_bytes):
        for parcel in parcels:
            assert parcel.content == bytes([parcel.sequence % 256]) * len(parcel.content)
        sequences += [parcel.sequence for parcel in parcels]
        outbox.acknowledge(sequences[-1])
    return sequences


def test_what_fits_into_memory_never_touches_the_disk(tmp_path: Path) -> None:
    outbox = Outbox(10 * SIZE, spool_in(tmp_path))
    put(outbox, *range(1, 11))
    assert (outbox.waiting_steps, outbox.memory_bytes, outbox.spool_bytes) == (100, 10 * SIZE, 0)
    assert drain(outbox) == list(range(1, 11))
    assert (outbox.waiting_steps, outbox.acknowledged_steps, outbox.memory_bytes) == (0, 100, 0)
    assert not list(tmp_path.iterdir())


def test_a_batch_is_at_least_one_and_at_most_so_many_bytes(tmp_path: Path) -> None:
    outbox = Outbox(10**6, spool_in(tmp_path))
    put(outbox, 1, 2, 3, 4)
    assert [p.sequence for p in outbox.batch(2500)] == [1, 2]
    assert [p.sequence for p in outbox.batch(10)] == [3]
    assert outbox.unsent == 1


def test_what_was_not_acknowledged_is_sent_again_after_a_rewind(tmp_path: Path) -> None:
    outbox = Outbox(10**6, spool_in(tmp_path))
    put(outbox, 1, 2, 3, 4)
    outbox.batch(10**6)
    outbox.acknowledge(2)
    outbox.rewind()
    assert drain(outbox) == [3, 4]


def test_what_exceeds_memory_goes_to_disk_and_comes_back_in_order(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 8 * 4 * (SIZE + 20)))
    put(outbox, *range(1, 21))
    assert outbox.memory_bytes == 3 * SIZE
    assert outbox.spool_bytes == 17 * (SIZE + 20)
    assert (outbox.waiting_steps, outbox.dropped_steps) == (200, 0)
    assert len(list((tmp_path / "home" / "0001").glob("*.segment"))) == 5
    outbox.batch(SIZE)
    outbox.acknowledge(1)
    put(outbox, 21)
    assert drain(outbox) == list(range(2, 22))
    assert (outbox.waiting_steps, outbox.dropped_steps, outbox.spool_bytes) == (0, 0, 0)
    outbox.park()
    assert not list((tmp_path / "home").iterdir())


def test_memory_of_nothing_still_sends_one_at_a_time(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path))
    put(outbox, *range(1, 8))
    assert drain(outbox) == list(range(1, 8))


def test_where_memory_and_disk_are_full_the_oldest_is_dropped_and_counted(tmp_path: Path) -> None:
    outbox = Outbox(2 * SIZE, spool_in(tmp_path, 3 * (SIZE + 20)))
    put(outbox, *range(1, 31))
    kept = drain(outbox)
    assert kept == list(range(31 - len(kept), 31))
    assert len(kept) >= 3, "what the disk holds at least"
    assert outbox.dropped_steps == STEPS * (30 - len(kept))
    assert outbox.waiting_steps == 0


def test_without_a_spool_memory_alone_bounds(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 0))
    put(outbox, *range(1, 11))
    assert drain(outbox) == [8, 9, 10]
    assert outbox.dropped_steps == 70
    assert not list(tmp_path.iterdir())


def test_one_that_is_larger_than_everything_is_kept_alone(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, SIZE))
    put(outbox, 1, 2)
    put(outbox, 3, size=10 * SIZE)
    assert drain(outbox) == [3]


def test_what_the_link_has_not_seen_is_bounded_too(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path))
    for sequence in range(1, 11):
        outbox.put(Fresh(sequence, STEPS, 4 * 2**20 // 3, lambda: b"x" * SIZE))
    assert (outbox.waiting_steps, outbox.dropped_steps) == (30, 70)
    assert [fresh.sequence for fresh in outbox.settle()] == [8, 9, 10]


def test_one_that_cannot_be_encoded_is_given_up_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(10**6, spool_in(tmp_path))

    def fail() -> bytes:
        raise RuntimeError("no")

    outbox.put(Fresh(1, STEPS, SIZE, fail))
    put(outbox, 2)
    assert drain(outbox) == [2]
    assert outbox.dropped_steps == STEPS
    assert "could not be encoded" in caplog.text


@pytest.mark.parametrize("trouble", ["a file is in the way", "the disk is full"])
def test_a_spool_that_cannot_be_written_costs_the_oldest_and_one_line_in_the_log(
    trouble: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if trouble == "a file is in the way":
        (tmp_path / "home").write_text("not a directory")
        spool = spool_in(tmp_path)
    else:
        if not Path("/dev/full").exists():
            pytest.skip("needs /dev/full")
        spool = spool_in(tmp_path)
        (tmp_path / "home" / "0001").mkdir(parents=True)
        for sequence in range(1, 11):
            (tmp_path / "home" / "0001" / f"{sequence:020d}.segment").symlink_to("/dev/full")
    outbox = Outbox(3 * SIZE, spool)
    put(outbox, *range(1, 11))
    assert outbox.dropped_steps == 70
    assert drain(outbox) == [8, 9, 10]
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "cannot be kept on disk" in caplog.text


def test_a_disk_that_fills_up_later_gives_up_the_oldest_only_as_far_as_it_must(tmp_path: Path) -> None:
    outbox = Outbox(2 * SIZE, spool_in(tmp_path))
    put(outbox, *range(1, 6))
    home = tmp_path / "home" / "0001"
    home.chmod(0o500)
    if os.access(home, os.W_OK):
        pytest.skip("nothing is unwritable for this user")
    outbox._spool.cut()
    put(outbox, 6)
    home.chmod(0o700)
    assert drain(outbox) == [1, 2, 3, 4, 5]
    assert outbox.dropped_steps == STEPS


def test_what_is_parked_is_sent_by_the_next_process(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 10**6))
    put(outbox, *range(1, 11))
    outbox.batch(SIZE)
    assert not list(dead_spools(tmp_path / "home")), "it is still alive"
    outbox.park()
    put(outbox, 11)
    assert outbox.dropped_steps == STEPS, "what comes after is counted as lost"

    (left,) = dead_spools(tmp_path / "home")
    assert left.hello == b"hello"
    assert not list(dead_spools(tmp_path / "home")), "somebody sends it already"
    heir = Outbox(2 * SIZE, left)
    assert heir.waiting_steps == 100
    assert drain(heir) == list(range(1, 11))
    heir.park()
    assert not list((tmp_path / "home").iterdir())


def test_what_was_inherited_is_left_to_the_next_if_the_connection_breaks(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path))
    put(outbox, 1, 2, 3)
    outbox.park()
    for _ in range(2):
        (inherited,) = dead_spools(tmp_path / "home")
        heir = Outbox(10 * SIZE, inherited)
        assert len(heir.batch(10 * SIZE)) == 3
        heir.park()
        assert (heir.waiting_steps, heir.dropped_steps) == (3 * STEPS, 0)
    (inherited,) = dead_spools(tmp_path / "home")
    assert drain(Outbox(10 * SIZE, inherited)) == [1, 2, 3]


def test_a_segment_that_vanishes_costs_what_was_in_it_and_no_more(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.append(Parcel(1, STEPS, b"lost"))
    next(spool.directory.glob("*.segment")).unlink()
    assert spool.next() is None
    spool.append(Parcel(2, STEPS, b"kept"))
    assert spool.next() == Parcel(2, STEPS, b"kept")
    assert spool.lost_steps == STEPS


def test_a_spool_that_could_not_say_whose_it_is_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spool_in(tmp_path)

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space"):
            spool.append(Parcel(1, STEPS, b"x"))
    spool.append(Parcel(1, STEPS, b"x"))
    assert (spool.directory / "hello").read_bytes() == b"hello"


def test_what_came_back_from_disk_is_not_parked_twice(tmp_path: Path) -> None:
    outbox = Outbox(3 * SIZE, spool_in(tmp_path, 10**6))
    put(outbox, *range(1, 9))
    outbox.batch(10 * SIZE)
    outbox.acknowledge(3)
    outbox.batch(10 * SIZE)
    outbox.acknowledge(6)
    put(outbox, 9)
    outbox.park()
    (left,) = dead_spools(tmp_path / "home")
    assert drain(Outbox(10**6, left))[-3:] == [7, 8, 9]
    assert left.lost_steps == 0


def test_parking_keeps_the_newest_that_fit(tmp_path: Path) -> None:
    outbox = Outbox(10 * SIZE, spool_in(tmp_path, 3 * (SIZE + 20)))
    put(outbox, *range(1, 9))
    outbox.park()
    assert outbox.dropped_steps == 50
    (left,) = dead_spools(tmp_path / "home")
    assert drain(Outbox(10**6, left)) == [6, 7, 8]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "removed"])
def test_a_damaged_segment_costs_what_is_in_it_and_no_more(damage: str, tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path, 8 * 2 * (SIZE + 20)))
    put(outbox, *range(1, 9))
    outbox.park()
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
    (left,) = dead_spools(tmp_path / "home")
    heir = Outbox(10**6, left)
    sequences = drain(heir)
    assert sequences == list(range(9 - len(sequences), 9)) or sequences[0] == 1
    assert len(sequences) >= 5
    assert heir.waiting_steps == 0
    heir.park()
    assert not list((tmp_path / "home").iterdir())


def test_a_directory_that_somebody_else_has_prepared_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    (public / "home").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    outbox = Outbox(SIZE, spool_in(public))
    put(outbox, 1, 2)
    assert "belongs to somebody else" in caplog.text
    assert outbox.dropped_steps == STEPS


def test_what_somebody_else_left_in_our_name_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    outbox = Outbox(0, spool_in(public))
    put(outbox, 1, 2)
    outbox.park()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert not list(dead_spools(public / "home"))
    monkeypatch.setattr(os, "getuid", lambda: uid)
    (left,) = dead_spools(public / "home")
    assert drain(Outbox(10 * SIZE, left)) == [1, 2]


def test_what_the_server_has_of_what_is_on_disk_does_not_hide_what_it_lacks(tmp_path: Path) -> None:
    outbox = Outbox(0, spool_in(tmp_path))
    put(outbox, *range(1, 21))
    outbox.park()
    (left,) = dead_spools(tmp_path / "home")
    heir = Outbox(3 * SIZE, left)
    heir.acknowledge(17)
    assert heir.acknowledged_steps == 17 * STEPS
    assert [parcel.sequence for parcel in heir.batch(10 * SIZE)] == [18, 19, 20]
