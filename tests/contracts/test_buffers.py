"""Contract of all buffers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Buffer, BufferResources, Demand
from rl4sys.config import parse
from rl4sys.registry import BUFFERS
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.state_tree import split_state

from ..buffers.steps import batches, drain, trajectory

DEMAND = Demand(batch_size=4, learning_starts=6, train_frequency=3, gradient_steps=2, n_step=2, gamma=0.5)
POOLS = {
    "old": {"share": 0.25, "buffer": {"size": 12}},
    "own": {"share": 0.75, "buffer": {"type": "prioritized", "size": 20}},
}
CASES: dict[str, dict[str, Any]] = {
    "trajectory": {"size": 8},
    "uniform": {"size": 20},
    "uniform, on disk": {"size": 20, "storage": "disk"},
    "uniform, of 1": {"size": 1},
    "uniform, of 4111": {"size": 4111},
    "prioritized": {"size": 20},
    "prioritized, of 17": {"size": 17, "beta_steps": 30},
    "sequence": {"size": 20, "length": 3},
    "sequence, within episodes": {"size": 37, "length": 7, "cross_episodes": False},
    "her": {"size": 20, "reward": "distance"},
    "her, final": {"size": 23, "reward": "distance", "strategy": "final", "terminated": "reached"},
    "her, episode": {"size": 20, "reward": "distance", "strategy": "episode", "terminated": "never"},
    "her, random": {"size": 20, "reward": "distance", "strategy": "random"},
    "union": {"pools": POOLS},
}

MakeBuffer = Callable[[], Buffer]


@pytest.fixture(params=CASES)
def make_buffer(request: pytest.FixtureRequest) -> MakeBuffer:
    return lambda: build(request.param)


def build(case: str) -> Buffer:
    name = case.partition(",")[0]
    demand = DEMAND
    if name == "union":
        demand = Demand(
            **{**vars(DEMAND), "resources": BufferResources(pools={"old": [trajectory(900, 9, end="terminated")]})}
        )
    buffer: Buffer = BUFFERS.get(name)(parse(BUFFERS.get(name).Config, {"type": name, **CASES[case]}), demand)
    return buffer


def feed(buffer: Buffer, steps: int, seed: int = 0) -> None:
    """Interleaved episodes of three systems, in trajectories of odd lengths, with all kinds of ends."""
    rng = np.random.default_rng(seed)
    episodes, offsets, taken = [3 * seed * 1000, 3 * seed * 1000 + 1, 3 * seed * 1000 + 2], [0, 0, 0], 0
    while taken < steps:
        system, length = int(rng.integers(3)), int(rng.integers(1, 7))
        end = ("", "", "terminated", "truncated")[int(rng.integers(4))]
        first = 1000 * (episodes[system] % 7) + offsets[system]
        buffer.add(
            trajectory(first, length, episode=episodes[system], offset=offsets[system], end=end, goal=first + 2),
            version=0,
        )
        taken, offsets[system] = taken + length, offsets[system] + length
        if end:
            episodes[system], offsets[system] = episodes[system] + 3, 0
        drain(buffer, seed=taken)


def fingerprint(buffer: Buffer) -> tuple[str, dict[str, bytes]]:
    document, arrays = split_state(buffer.state())
    return json.dumps(document), {name: array.tobytes() for name, array in arrays.items()}


def test_steps_to_next_update_is_exact(make_buffer: MakeBuffer) -> None:
    buffer, number = make_buffer(), 0
    for _ in range(4):
        for missing in range(buffer.steps_to_next_update(), 0, -1):
            assert buffer.steps_to_next_update() == missing
            assert drain(buffer) == []
            assert buffer.add(trajectory(number, 1, episode=number, end="terminated"), version=0) == 1
            number += 1
        assert drain(buffer) != []
        assert drain(buffer) == [], "a batch should be due only once"
        assert buffer.steps_to_next_update() >= 1


@pytest.mark.parametrize("steps", [1, 5, 28, 33, 100])
def test_restored_buffer_continues_identically(make_buffer: MakeBuffer, steps: int) -> None:
    one, other = make_buffer(), make_buffer()
    feed(one, steps)
    other.restore(one.state())
    assert fingerprint(other) == fingerprint(one)
    for buffer in (one, other):
        # Continues open episodes and adds more steps than either ring stores.
        buffer.add(trajectory(40, 6, episode=1, offset=3, end="truncated"), version=0)
        feed(buffer, 60, seed=1)
        buffer.add(trajectory(0, 9, episode=77777), version=0)
    found = drain(one, seed=5)
    assert found != [], "the buffers should have batches to compare"
    assert drain(other, seed=5) == found
    assert fingerprint(other) == fingerprint(one)


def test_buffer_round_trips_through_disk(make_buffer: MakeBuffer, tmp_path: Path) -> None:
    one, other, store = make_buffer(), make_buffer(), CheckpointStore(tmp_path)
    for step in range(1, 6):
        feed(one, 13, seed=step)
        store.save(step, {"buffer": one.state()}, None)
    other.restore(store.load().state["buffer"])
    assert fingerprint(other) == fingerprint(one)
    for buffer in (one, other):
        feed(buffer, 30, seed=9)
    assert fingerprint(other) == fingerprint(one)


def test_empty_buffer_round_trips_through_disk(make_buffer: MakeBuffer, tmp_path: Path) -> None:
    one, other, store = make_buffer(), make_buffer(), CheckpointStore(tmp_path)
    store.save(0, {"buffer": one.state()}, None)
    other.restore(store.load().state["buffer"])
    for buffer in (one, other):
        feed(buffer, 30)
    assert fingerprint(other) == fingerprint(one)


def test_seed_determines_the_batches(make_buffer: MakeBuffer) -> None:
    first, second, other = make_buffer(), make_buffer(), make_buffer()
    for buffer in (first, second, other):
        buffer.add(trajectory(0, 30, episode=1), version=0)
    drawn = drain(first, seed=1)
    assert drain(second, seed=1) == drawn
    alike = drain(other, seed=2) == drawn
    assert alike == (
        isinstance(first, BUFFERS.get("trajectory")) or len({row for b in drawn for row in np.ravel(b["action"])}) == 1
    )


def test_sampling_does_not_change_the_state(make_buffer: MakeBuffer) -> None:
    buffer = make_buffer()
    buffer.add(trajectory(0, 5, episode=1), version=0)
    state = buffer.state()
    before = {name: array.copy() for name, array in split_state(state)[1].items()}
    buffer.add(trajectory(50, 4, episode=3), version=0)
    drain(buffer)
    after = split_state(state)[1]
    assert before
    assert all(np.array_equal(after[name], column) for name, column in before.items())


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_only_terminated_episodes_are_marked_terminated(make_buffer: MakeBuffer, end: str) -> None:
    buffer = make_buffer()
    buffer.add(trajectory(0, 8, episode=1, end=end, goal=8.0), version=0)
    found = [bool(flag) for batch in batches(buffer) for flag in np.ravel(batch["terminated"][batch["action"] < 900])]
    assert found
    if end == "truncated" and "reached" not in str(getattr(buffer, "_options", "")):
        assert not any(found)
    for batch in drain(buffer):
        assert set(batch) >= {"obs.state", "next_obs.state", "action", "reward", "terminated"}


def test_next_observation_is_the_following_observation(make_buffer: MakeBuffer) -> None:
    buffer = make_buffer()
    for start in range(0, 60, 4):
        buffer.add(
            trajectory(start, 4, episode=start // 20, offset=start % 20, end="truncated" * (start % 20 == 16)), 0
        )
        for batch in batches(buffer, seed=start):
            moved = batch["next_obs.state"][..., 0] - batch["obs.state"][..., 0]
            assert ((moved == 1) | (moved == 2)).all(), "one step, or two with n_step 2"
            assert (batch["obs.state"][..., 0] == batch["action"]).all()
