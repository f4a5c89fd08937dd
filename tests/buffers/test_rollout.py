"""Rollout buffer for on-policy algorithms."""

from __future__ import annotations

import numpy as np

from rl4sys.buffers.base import Demand
from rl4sys.buffers.rollout import Rollout, RolloutConfig

from .steps import drain, trajectory


def test_rollout_keeps_the_order_of_steps_and_is_then_discarded() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=8), Demand())
    buffer.add(trajectory(0, 3, end="terminated"), version=0)
    buffer.add(trajectory(3, 4, episode=1, end="truncated"), version=0)
    buffer.add(trajectory(7, 5, episode=2), version=0)
    (batch,) = drain(buffer)
    assert batch["action"] == list(range(12)), "a rollout may be longer than its size"
    assert [i for i, last in enumerate(batch["last"]) if last] == [2, 6, 11]
    assert [i for i, terminated in enumerate(batch["terminated"]) if terminated] == [2]
    assert [i for i, ended in enumerate(batch["ended"]) if ended] == [2, 6]
    assert batch["next_obs.state"] == [[float(i + 1)] for i in range(12)]
    assert buffer.steps_to_next_update() == 8


def test_rollout_rejects_stale_trajectories() -> None:
    strict, lenient = (
        Rollout(RolloutConfig(type="trajectory", size=99, max_staleness=lag), Demand()) for lag in (0, 1)
    )
    assert [strict.add(trajectory(0, 4, version=v), version=7) for v in (7, 6, 5)] == [4, 0, 0]
    assert [lenient.add(trajectory(0, 4, version=v), version=7) for v in (7, 6, 5)] == [4, 4, 0]


def test_rollout_rejects_future_versions() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=99, max_staleness=5), Demand())
    assert [buffer.add(trajectory(0, 4, version=v), version=7) for v in (8, 1000, 7)] == [0, 0, 4]


def test_rollout_reports_staleness_of_each_step() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=6, max_staleness=5), Demand())
    for version, steps in ((7, 2), (4, 3), (6, 1)):
        buffer.add(trajectory(0, steps, version=version), version=7)
    (batch,) = buffer.batches(np.random.default_rng(0))
    assert batch["staleness"].tolist() == [0, 0, 3, 3, 3, 1]
    assert batch["staleness"].dtype == np.int64


def by_episodes(episodes: int, size: int = 50) -> Rollout:
    return Rollout(RolloutConfig(type="trajectory", size=size, episodes=episodes), Demand())


def test_rollout_is_complete_after_the_configured_episodes() -> None:
    buffer = by_episodes(2)
    assert buffer.steps_to_next_update() == 50
    buffer.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    buffer.add(trajectory(3, 4, episode=2), version=0)
    assert drain(buffer) == [], "an unfinished episode does not count"
    assert buffer.steps_to_next_update() == 43
    buffer.add(trajectory(7, 1, episode=2, offset=4, end="truncated"), version=0)
    assert [len(batch["reward"]) for batch in drain(buffer)] == [8]
    buffer.add(trajectory(8, 2, episode=3, end="terminated"), version=0)
    assert drain(buffer) == [], "the count restarts with each rollout"


def test_rollout_with_episode_limit_is_also_complete_at_its_size() -> None:
    buffer = by_episodes(2, size=5)
    buffer.add(trajectory(0, 6), version=0)
    assert buffer.steps_to_next_update() == 1
    assert [len(batch["reward"]) for batch in drain(buffer)] == [6]


def test_rejected_episodes_do_not_complete_a_rollout() -> None:
    buffer = by_episodes(1)
    assert buffer.add(trajectory(0, 3, version=0, end="terminated"), version=1) == 0
    assert drain(buffer) == []


def test_restored_rollout_keeps_the_number_of_ended_episodes() -> None:
    one, other = by_episodes(2), by_episodes(2)
    one.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    other.restore(one.state())
    for buffer in (one, other):
        assert drain(buffer) == []
        buffer.add(trajectory(3, 2, episode=2, end="terminated"), version=0)
    batches = drain(one)
    assert len(batches) == 1
    assert drain(other) == batches
