"""Contract of all buffers. `rl4sys.testing` defines the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Buffer, BufferConfig, BufferResources, Demand
from rl4sys.config import parse
from rl4sys.registry import BUFFERS
from rl4sys.runs.state_tree import split_state
from rl4sys.testing.buffers import (
    DEMAND,
    MakeBuffer,
    batches_have_all_columns,
    buffer_restored_from_disk_continues_identically,
    empty_buffer_restored_from_disk_continues_identically,
    restored_buffer_continues_identically,
    returned_state_does_not_change,
    rows_are_transitions_of_the_trajectories,
    seed_determines_the_batches,
    steps_to_next_update_is_exact,
    terminated_episodes_are_marked_terminated,
    truncated_episodes_are_not_marked_terminated,
)
from rl4sys.testing.configs import config_class_is_frozen_and_typed

from ..buffers.steps import drain, trajectory

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


def test_steps_to_next_update_is_exact(make_buffer: MakeBuffer) -> None:
    steps_to_next_update_is_exact(make_buffer)


@pytest.mark.parametrize("steps", [1, 5, 28, 33, 100])
def test_restored_buffer_continues_identically(make_buffer: MakeBuffer, steps: int) -> None:
    restored_buffer_continues_identically(make_buffer, steps)


def test_buffer_restored_from_disk_continues_identically(make_buffer: MakeBuffer, tmp_path: Path) -> None:
    buffer_restored_from_disk_continues_identically(make_buffer, tmp_path)


def test_empty_buffer_restored_from_disk_continues_identically(make_buffer: MakeBuffer, tmp_path: Path) -> None:
    empty_buffer_restored_from_disk_continues_identically(make_buffer, tmp_path)


def test_seed_determines_the_batches(make_buffer: MakeBuffer) -> None:
    seed_determines_the_batches(make_buffer)
    first, other = make_buffer(), make_buffer()
    for buffer in (first, other):
        buffer.add(trajectory(0, 30, episode=1), version=0)
    drawn = drain(first, seed=1)
    alike = drain(other, seed=2) == drawn
    assert alike == (
        isinstance(first, BUFFERS.get("trajectory")) or len({row for b in drawn for row in np.ravel(b["action"])}) == 1
    )


def test_later_steps_and_samples_do_not_change_a_returned_state(make_buffer: MakeBuffer) -> None:
    returned_state_does_not_change(make_buffer)
    buffer = make_buffer()
    buffer.add(trajectory(0, 5, episode=1), version=0)
    assert split_state(buffer.state())[1], "the state should contain arrays that could change"


def test_batches_have_all_columns(make_buffer: MakeBuffer) -> None:
    batches_have_all_columns(make_buffer)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].get("terminated") != "reached"])
def test_truncated_episodes_are_not_marked_terminated(case: str) -> None:
    truncated_episodes_are_not_marked_terminated(lambda: build(case))


@pytest.mark.parametrize("case", [case for case in CASES if "terminated" not in CASES[case]])
def test_terminated_episodes_are_marked_terminated(case: str) -> None:
    terminated_episodes_are_marked_terminated(lambda: build(case))


def test_next_observation_is_at_most_n_steps_later(make_buffer: MakeBuffer) -> None:
    rows_are_transitions_of_the_trajectories(make_buffer)


@pytest.mark.parametrize("name", BUFFERS.names())
def test_config_is_frozen_and_typed(name: str) -> None:
    config_class_is_frozen_and_typed(BUFFERS.get(name).Config, BufferConfig)
