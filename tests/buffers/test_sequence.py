"""Replay of windows of consecutive steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.buffers.base import Batch, Demand
from rl4sys.buffers.ring import slots_for
from rl4sys.buffers.sequence import Sequence, SequenceConfig

from .steps import trajectory


def make(length: int = 4, size: int = 100, **options: Any) -> Sequence:
    return Sequence(SequenceConfig(type="sequence", size=size, length=length, **options), Demand(batch_size=200))


def draw(buffer: Sequence) -> Batch:
    return buffer.sample(np.random.default_rng(0), 200)


def windows(batch: Batch) -> set[tuple[int, ...]]:
    return {tuple(row) for row in batch["action"].tolist()}


def test_windows_continue_across_trajectories() -> None:
    buffer = make()
    # Trajectories of two environments alternate; each trajectory has one step.
    for step in range(6):
        buffer.add(trajectory(step, 1, episode=1, offset=step), version=0)
        buffer.add(trajectory(50 + step, 1, episode=2, offset=step), version=0)
    batch = draw(buffer)
    expected = {tuple(range(s, s + 4)) for s in (0, 1, 2, 50, 51, 52)}
    assert windows(batch) == expected
    assert batch["obs.state"].shape == batch["next_obs.state"].shape == (200, 4, 1)
    assert batch["valid"].all()
    starts = batch["action"][:, 0]
    np.testing.assert_array_equal(batch["first"][:, 0], np.isin(starts, [0, 50]))
    assert not batch["first"][:, 1:].any()


def test_window_marks_the_first_step_of_the_next_episode() -> None:
    buffer = make()
    buffer.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    buffer.add(trajectory(10, 3, episode=2, end="truncated"), version=0)
    batch = draw(buffer)
    assert windows(batch) == {(0, 1, 2, 10), (1, 2, 10, 11), (2, 10, 11, 12)}
    row = int(np.flatnonzero(batch["action"][:, 0] == 1)[0])
    assert batch["first"][row].tolist() == [False, False, True, False]
    assert batch["terminated"][row].tolist() == [False, True, False, False]
    assert batch["ended"][row].tolist() == [False, True, False, False]
    assert batch["next_obs.state"][row, :, 0].tolist() == [2, 3, 11, 12], (
        "the final observation, not the first of the next episode"
    )
    last = int(np.flatnonzero(batch["action"][:, 0] == 2)[0])
    assert (batch["ended"][last, -1], batch["terminated"][last, -1]) == (True, False)


def test_short_window_within_episode_repeats_its_last_step() -> None:
    buffer = make(cross_episodes=False)
    buffer.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    buffer.add(trajectory(10, 5, episode=2, end="terminated"), version=0)
    batch = draw(buffer)
    assert windows(batch) == {(0, 1, 2, 2), (10, 11, 12, 13), (11, 12, 13, 14)}
    short = batch["action"][:, 0] == 0
    assert (batch["valid"][short] == [True, True, True, False]).all()
    assert batch["valid"][~short].all()


def test_gap_in_an_episode_starts_a_new_chain() -> None:
    buffer = make(length=3)
    buffer.add(trajectory(0, 2, episode=1), version=0)
    buffer.add(trajectory(5, 2, episode=1, offset=5, end="terminated"), version=0)
    batch = draw(buffer)
    assert windows(batch) == {(0, 1, 1), (5, 6, 6)}
    assert (batch["first"][batch["action"][:, 0] == 5][:, 0]).all(), "the steps before the gap are unknown"


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.booleans()), min_size=1, max_size=40),
    length=st.integers(1, 9),
    cross=st.booleans(),
)
def test_windows_follow_episodes_after_the_ring_wraps(
    pieces: list[tuple[int, int, bool]], length: int, cross: bool
) -> None:
    buffer = make(length=length, size=23, cross_episodes=cross)
    episodes, offsets = [0, 1, 2], [0, 0, 0]
    for system, steps, ends in pieces:
        first = 1000 * episodes[system] + offsets[system]
        end = "truncated" if ends else ""
        buffer.add(trajectory(first, steps, episode=episodes[system], offset=offsets[system], end=end), version=0)
        offsets[system] += steps
        if ends:
            episodes[system], offsets[system] = episodes[system] + 3, 0
    batch = draw(buffer)
    action, valid = batch["action"], batch["valid"]
    continues = action[:, 1:] == action[:, :-1] + 1
    repeats = (action[:, 1:] == action[:, :-1]) & ~valid[:, 1:]
    begins = batch["first"][:, 1:] & batch["ended"][:, :-1]
    assert (continues | repeats | begins).all()
    assert cross or not (begins & valid[:, 1:]).any()
    assert valid[:, 0].all()


def test_windows_contain_no_overwritten_steps() -> None:
    buffer = make(length=6, size=5)
    for start in range(0, 15, 3):
        buffer.add(trajectory(start, 3, episode=start, end="terminated"), version=0)
    buffer.add(trajectory(15, 2, episode=15), version=0)
    assert windows(draw(buffer)) == {(12, 13, 14, 15, 16, 16)}


def test_episode_is_not_linked_to_an_overwritten_episode() -> None:
    buffer = make(length=2, size=4)
    buffer.add(trajectory(0, 1, episode=0, end="terminated"), version=0)
    # This episode is so long that its last step takes the slot of the last step of the previous episode.
    buffer.add(trajectory(1, slots_for(4), episode=1), version=0)
    buffer.add(trajectory(33, 1, episode=2), version=0)
    assert windows(draw(buffer)) == {(30, 31), (31, 32), (33, 33)}


@pytest.mark.parametrize("cross", [True, False])
def test_every_stored_step_is_sampled(cross: bool) -> None:
    buffer = make(length=5, size=50, cross_episodes=cross)
    for start in range(0, 70, 7):
        buffer.add(trajectory(start, 7, episode=start, end="terminated"), version=0)
    drawn = set(np.ravel(draw(buffer)["action"]).tolist())
    assert drawn == set(range(20, 70)), "all stored steps"
