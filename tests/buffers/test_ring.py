"""Ring storage of the replay buffers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.buffers.ring import Ring, block_size, slots_for
from rl4sys.buffers.storage import allocator
from rl4sys.errors import CheckpointError, RunError, SpecError
from rl4sys.runs.state_tree import split_state
from rl4sys.trajectory import Trajectory

DEPTH = 3


def ring(capacity: int, *, unstack: bool = False) -> Ring:
    return Ring(capacity, np.zeros, unstack=unstack)


def stacked(first: int, steps: int, *, episode: int = 0, offset: int = 0, end: str = "") -> Trajectory:
    """Return images whose frame n is filled with n; zeros come before the first frame of an episode."""
    frames = np.arange(first - offset - DEPTH + 1, first + steps + 1)
    frames = np.where(frames < first - offset, 0, frames)[offset:]
    stacks = np.lib.stride_tricks.sliding_window_view(frames, DEPTH)
    columns = {
        "obs.image": np.broadcast_to(stacks[:, :, None, None], (steps + 1, DEPTH, 2, 2)).astype(np.uint16),
        "obs.state": np.arange(first, first + steps + 1, dtype=np.float32)[:, None],
        "action": np.arange(first, first + steps),
        "reward": np.zeros(steps, np.float32),
        "log_prob": np.zeros(steps, np.float32),
    }
    return Trajectory(0, columns, episode, offset, terminated=end == "terminated", truncated=end == "truncated")


def all_observations(storage: Ring) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    numbers = np.arange(storage.oldest, storage.seen)
    return storage.observations(numbers), storage.next_observations(numbers)


def fingerprint(storage: Ring) -> tuple[str, dict[str, bytes]]:
    document, arrays = split_state(storage.state())
    return json.dumps(document), {name: array.tobytes() for name, array in arrays.items()}


PIECES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 25), st.booleans()), min_size=1, max_size=40)


def feed(rings: list[Ring], pieces: list[tuple[int, int, bool]]) -> None:
    episodes, offsets = [0, 1, 2], [0, 0, 0]
    for system, steps, ends in pieces:
        piece = stacked(
            1000 * (episodes[system] + 1) + offsets[system],
            steps,
            episode=episodes[system],
            offset=offsets[system],
            end="terminated" if ends else "",
        )
        for storage in rings:
            storage.add(piece)
        offsets[system] += steps
        if ends:
            episodes[system], offsets[system] = episodes[system] + 3, 0


@settings(max_examples=60, deadline=None)
@given(pieces=PIECES, capacity=st.integers(1, 40))
def test_frame_stacks_are_restored_from_single_frames(pieces: list[tuple[int, int, bool]], capacity: int) -> None:
    whole, single = ring(capacity), ring(capacity, unstack=True)
    feed([whole, single], pieces)
    for expected, found in zip(all_observations(whole), all_observations(single), strict=True):
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)


@settings(max_examples=40, deadline=None)
@given(pieces=PIECES, more=PIECES, capacity=st.integers(1, 40), unstack=st.booleans())
def test_restored_ring_continues_identically(
    pieces: list[tuple[int, int, bool]], more: list[tuple[int, int, bool]], capacity: int, unstack: bool
) -> None:
    one, other = ring(capacity, unstack=unstack), ring(capacity, unstack=unstack)
    feed([one], pieces)
    other.restore(one.state())
    for _ in range(2):
        for expected, found in zip(all_observations(one), all_observations(other), strict=True):
            assert all(np.array_equal(found[name], column) for name, column in expected.items())
        assert fingerprint(one) == fingerprint(other)
        feed([one, other], more)


def test_frame_stacks_are_correct_after_their_first_steps_are_overwritten() -> None:
    whole, single = ring(60), ring(60, unstack=True)
    for storage in (whole, single):
        storage.add(stacked(1000, 2, episode=1))
        storage.add(stacked(5000, 50, episode=2))
        storage.add(stacked(1002, 8, episode=1, offset=2))
        # The first two steps of episode 1 are overwritten; its other steps are still stored.
        storage.add(stacked(9000, 30, episode=3))
    assert whole.column("action", np.array([52]))[0] == 1002
    np.testing.assert_array_equal(all_observations(single)[0]["obs.image"], all_observations(whole)[0]["obs.image"])


def test_each_observation_is_stored_once() -> None:
    storage = ring(10_000)
    for start in range(0, 10_000, 10):
        storage.add(stacked(start, 10, offset=start))
    assert storage._tails._capacity < 100, "only the newest step has no successor"
    assert storage._columns["obs.image"].nbytes == slots_for(10_000) * DEPTH * 4 * 2
    single = ring(10_000, unstack=True)
    single.add(stacked(0, 10))
    assert single._columns["obs.image"].nbytes == slots_for(10_000) * 4 * 2


def test_trajectory_may_start_with_another_observation_than_the_last_one_ended_with() -> None:
    storage = ring(100)
    storage.add(stacked(0, 2))
    other = stacked(2, 2, offset=2)
    columns = {**other.columns, "obs.state": other.columns["obs.state"] + 0.5}
    storage.add(Trajectory(0, columns, offset=2))
    numbers = np.arange(4)
    assert storage.successor(numbers).tolist() == [1, 2, 3, -1]
    assert storage.observations(numbers)["obs.state"][:, 0].tolist() == [0, 1, 2.5, 3.5]
    assert storage.next_observations(numbers)["obs.state"][:, 0].tolist() == [1, 2, 3.5, 4.5]
    again = ring(100)
    again.restore(storage.state())
    assert again.next_observations(numbers)["obs.state"][:, 0].tolist() == [1, 2, 3.5, 4.5]


def test_steps_are_not_linked_across_a_gap() -> None:
    storage = ring(100)
    storage.add(stacked(0, 2))
    storage.add(stacked(5, 2, offset=5))
    assert storage.successor(np.arange(4)).tolist() == [1, -1, 3, -1]
    assert storage.next_observations(np.array([1]))["obs.state"][0, 0] == 2


def test_images_without_shifted_frames_are_rejected() -> None:
    piece = stacked(0, 5)
    piece.columns["obs.image"][3] = 7  # type: ignore[index]
    storage = ring(100, unstack=True)
    with pytest.raises(
        SpecError, match=r"obs.image is not a stack of frames that shifts by one frame .*; set buffer.unstack: false"
    ):
        storage.add(piece)
    assert storage.seen == 0


def test_checkpoint_with_a_different_buffer_size_is_rejected() -> None:
    one, other = ring(100), ring(101)
    one.add(stacked(0, 2))
    with pytest.raises(
        CheckpointError,
        match=r"has a buffer of 100 steps, but buffer.size is 101; resume with the buffer.size of the checkpoint",
    ):
        other.restore(one.state())


@pytest.mark.parametrize("capacity", [1, 15, 16, 17, 1000, 4096, 100_000])
def test_ring_has_at_most_300_whole_blocks(capacity: int) -> None:
    slots, block = slots_for(capacity), block_size(capacity)
    assert slots % block == 0
    assert slots >= capacity + block
    assert slots / block <= 300


def test_columns_on_disk_are_unnamed_files(tmp_path: Path) -> None:
    column = allocator("disk", tmp_path)((1000, 3), np.dtype(np.float32))
    column[5] = 1.0
    assert column.sum() == 3.0
    assert list(tmp_path.iterdir()) == [], "no file remains, however the process ends"
    assert any(str(tmp_path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_full_disk_is_reported_at_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    make: Callable[..., np.ndarray] = allocator("disk", tmp_path)
    with pytest.raises(
        RunError, match=r"cannot allocate 12,000 bytes for the buffer in .*: No space left .*; lower buffer"
    ):
        make((1000, 3), np.dtype(np.float32))
