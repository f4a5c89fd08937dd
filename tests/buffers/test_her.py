"""Hindsight experience replay: goals, rewards and termination of relabeled steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Batch, BufferResources, Demand
from rl4sys.buffers.goals import distance
from rl4sys.buffers.her import Her, HerConfig
from rl4sys.errors import ConfigError, SpecError
from rl4sys.registry import GOAL_REWARDS
from rl4sys.trajectory import Trajectory

from .steps import trajectory


def make(size: int = 100, n_step: int = 1, resources: BufferResources | None = None, **options: Any) -> Her:
    config = HerConfig(type="her", size=size, **{"reward": "distance", "threshold": 0.5, **options})
    return Her(config, Demand(n_step=n_step, gamma=0.5, resources=resources or BufferResources()))


def draw(buffer: Her, rows: int = 2000) -> Batch:
    return buffer.sample(np.random.default_rng(0), rows)


def goals(batch: Batch, step: int) -> set[int]:
    return set(batch["obs.desired_goal"][batch["action"] == step, 0].astype(int).tolist())


def filled(**options: Any) -> Her:
    """Return a buffer with two interleaved episodes: steps 0..4 (unfinished) and 50..52. Step n achieves goal n + 1."""
    buffer = make(**options)
    buffer.add(trajectory(0, 2, episode=1, goal=-7), version=0)
    buffer.add(trajectory(50, 1, episode=2, goal=-7), version=0)
    buffer.add(trajectory(2, 3, episode=1, offset=2, goal=-7), version=0)
    buffer.add(trajectory(51, 2, episode=2, offset=1, end="truncated", goal=-7), version=0)
    return buffer


EXPECTED: dict[str, dict[int, set[int]]] = {
    "future": {0: {1, 2, 3, 4, 5}, 3: {4, 5}, 4: {5}, 50: {51, 52, 53}, 52: {53}},
    "final": {0: {5}, 3: {5}, 50: {53}, 52: {53}},
    "episode": {0: {1, 2, 3, 4, 5}, 4: {1, 2, 3, 4, 5}, 51: {51, 52, 53}},
    "random": {0: {1, 2, 3, 4, 5, 51, 52, 53}, 52: {1, 2, 3, 4, 5, 51, 52, 53}},
}


@pytest.mark.parametrize("strategy", EXPECTED)
def test_strategy_selects_the_source_of_goals(strategy: str) -> None:
    batch = draw(filled(strategy=strategy, ratio=1.0))
    assert {step: goals(batch, step) for step in EXPECTED[strategy]} == EXPECTED[strategy]
    np.testing.assert_array_equal(batch["next_obs.desired_goal"], batch["obs.desired_goal"])


def test_future_goals_are_sampled_uniformly() -> None:
    batch = draw(filled(strategy="future", ratio=1.0), rows=20_000)
    counts = np.bincount(batch["obs.desired_goal"][batch["action"] == 0, 0].astype(int))[1:]
    assert counts.min() > 0.85 * counts.mean()


def test_ratio_sets_the_fraction_of_relabeled_rows() -> None:
    batch = draw(filled(ratio=0.8), rows=20_000)
    unchanged = batch["obs.desired_goal"][:, 0] == -7
    assert unchanged.mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(
        batch["reward"][unchanged], batch["action"][unchanged], "rows that are not relabeled keep their rewards"
    )


def test_relabeled_rewards_match_the_new_goal() -> None:
    batch = draw(filled(ratio=1.0))
    reached = batch["next_obs.achieved_goal"][:, 0] == batch["obs.desired_goal"][:, 0]
    assert 0.1 < reached.mean() < 0.9
    np.testing.assert_array_equal(batch["reward"], np.where(reached, 0, -1))
    assert batch["reward"].dtype == np.float32


@pytest.mark.parametrize(("rule", "expected"), [("recorded", {52}), ("never", set()), ("reached", None)])
def test_terminated_option_sets_the_flag_of_relabeled_steps(rule: str, expected: set[int] | None) -> None:
    buffer = make(ratio=1.0, terminated=rule)
    buffer.add(trajectory(0, 5, episode=1), version=0)
    buffer.add(trajectory(50, 3, episode=2, end="terminated"), version=0)
    batch = draw(buffer)
    reached = batch["next_obs.achieved_goal"][:, 0] == batch["obs.desired_goal"][:, 0]
    if expected is None:
        np.testing.assert_array_equal(batch["terminated"], reached)
    else:
        assert set(batch["action"][batch["terminated"]].tolist()) == expected


def test_relabeled_n_step_sums_stop_at_the_new_goal() -> None:
    buffer = make(ratio=1.0, strategy="final", n_step=3, terminated="reached")
    buffer.add(trajectory(0, 5, episode=1, end="truncated"), version=0)
    batch = draw(buffer)
    rows = {int(action): row for row, action in enumerate(batch["action"])}
    found = {
        s: (float(batch["reward"][r]), float(batch["discount"][r]), bool(batch["terminated"][r]))
        for s, r in rows.items()
    }
    # The goal is 5, which step 4 achieves.
    assert found == {
        0: (-1.75, 0.125, False),
        1: (-1.75, 0.125, False),
        2: (-1.5, 0.125, True),
        3: (-1.0, 0.25, True),
        4: (0.0, 0.5, True),
    }


def test_n_step_sum_stops_at_the_terminating_goal() -> None:
    buffer = make(ratio=1.0, strategy="episode", n_step=3, terminated="reached")
    buffer.add(trajectory(0, 5, episode=1, end="truncated"), version=0)
    batch = draw(buffer)
    row = int(np.flatnonzero((batch["action"] == 1) & (batch["obs.desired_goal"][:, 0] == 3))[0])
    # Step 1 misses the goal and step 2 reaches the goal; the reward of step 3 must not be added.
    assert (batch["reward"][row], batch["discount"][row], batch["terminated"][row]) == (-1.0, 0.25, True)
    assert batch["next_obs.state"][row, 0] == 3


def test_goals_of_partly_overwritten_episodes_come_from_stored_steps() -> None:
    buffer = make(size=6, ratio=1.0, strategy="episode")
    for start in range(0, 40, 4):
        buffer.add(trajectory(start, 4, episode=1, offset=start), version=0)
    assert set(draw(buffer)["obs.desired_goal"][:, 0].astype(int).tolist()) == set(range(35, 41))
    assert len(buffer._episodes._numbers[0]) < 20, "overwritten steps are removed"


def test_overwritten_episodes_are_removed() -> None:
    buffer = make(size=6)
    for episode in range(100):
        buffer.add(trajectory(episode, 2, episode=episode, end="terminated"), version=0)
        buffer.add(trajectory(episode, 1, episode=1000, offset=episode), version=0)
    assert len(buffer._episodes._numbers) < 5


def test_goal_reward_of_the_environment_is_used() -> None:
    resources = BufferResources(goal_reward=lambda achieved, desired: -np.abs(achieved - desired)[:, 0])
    batch = draw(filled(ratio=1.0, reward="environment", resources=resources))
    np.testing.assert_array_equal(
        batch["reward"], -np.abs(batch["next_obs.achieved_goal"] - batch["obs.desired_goal"])[:, 0]
    )
    assert len(np.unique(batch["reward"])) > 3


def test_missing_goal_reward_is_rejected() -> None:
    with pytest.raises(
        ConfigError,
        match=r"buffer.reward is 'environment', but the environment has no goal reward; set .* to one of: distance",
    ):
        make(reward="environment")
    with pytest.raises(ConfigError, match="no goal reward is named 'distanse'; did you mean distance"):
        make(reward="distanse")


def test_goal_reward_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GOAL_REWARDS, "_own", {"twice": lambda threshold: lambda a, d: 2 * distance(threshold)(a, d)})
    assert set(draw(filled(ratio=1.0, reward="twice"))["reward"].tolist()) == {0, -2}


def test_unvectorized_goal_reward_is_rejected() -> None:
    resources = BufferResources(goal_reward=lambda achieved, desired: np.float32(1))
    with pytest.raises(
        SpecError,
        match=r"the goal reward function returned shape \(\) for 5 goals; expected \(5,\)\. "
        r"The function must accept one goal per row",
    ):
        draw(filled(ratio=1.0, reward="environment", resources=resources), rows=5)


def test_observations_without_goals_are_rejected() -> None:
    columns = {"obs.state": np.zeros((2, 1)), "reward": np.zeros(1), "action": np.zeros(1)}
    with pytest.raises(ConfigError, match="needs the observations 'achieved_goal' and 'desired_goal'; found: state"):
        make().add(Trajectory(0, columns), version=0)
