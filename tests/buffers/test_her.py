"""Hindsight: which goals are put in the place of others, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Batch, Demand, Provided
from rl4sys.buffers.goals import distance
from rl4sys.buffers.her import Her, HerConfig
from rl4sys.errors import ConfigError, SpecError
from rl4sys.registry import GOAL_REWARDS
from rl4sys.trajectory import Trajectory

from .steps import trajectory


def make(size: int = 100, n_step: int = 1, provided: Provided | None = None, **options: Any) -> Her:
    config = HerConfig(type="her", size=size, **{"reward": "distance", "threshold": 0.5, **options})
    return Her(config, Demand(n_step=n_step, gamma=0.5, provided=provided or Provided()))


def draw(buffer: Her, rows: int = 2000) -> Batch:
    return buffer.sample(np.random.default_rng(0), rows)


def goals(batch: Batch, step: int) -> set[int]:
    return set(batch["obs.desired_goal"][batch["action"] == step, 0].astype(int).tolist())


def filled(**options: Any) -> Her:
    """Two episodes in turns, in pieces: steps 0..4 that go on, and 50..52 that ended. What step n achieves is n + 1."""
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
def test_goals_are_what_was_achieved_where_the_strategy_says(strategy: str) -> None:
    batch = draw(filled(strategy=strategy, ratio=1.0))
    assert {step: goals(batch, step) for step in EXPECTED[strategy]} == EXPECTED[strategy]
    np.testing.assert_array_equal(batch["next_obs.desired_goal"], batch["obs.desired_goal"])


def test_future_goals_are_all_as_likely() -> None:
    batch = draw(filled(strategy="future", ratio=1.0), rows=20_000)
    counts = np.bincount(batch["obs.desired_goal"][batch["action"] == 0, 0].astype(int))[1:]
    assert counts.min() > 0.85 * counts.mean()


def test_the_ratio_says_how_many_rows_get_another_goal() -> None:
    batch = draw(filled(ratio=0.8), rows=20_000)
    kept = batch["obs.desired_goal"][:, 0] == -7
    assert kept.mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(batch["reward"][kept], batch["action"][kept], "rows as they were keep their rewards")


def test_rewards_are_those_the_new_goal_gives() -> None:
    batch = draw(filled(ratio=1.0))
    reached = batch["next_obs.achieved_goal"][:, 0] == batch["obs.desired_goal"][:, 0]
    assert 0.1 < reached.mean() < 0.9
    np.testing.assert_array_equal(batch["reward"], np.where(reached, 0, -1))
    assert batch["reward"].dtype == np.float32


@pytest.mark.parametrize(("rule", "expected"), [("recorded", {52}), ("never", set()), ("reached", None)])
def test_an_option_says_when_a_step_with_another_goal_terminates(rule: str, expected: set[int] | None) -> None:
    buffer = make(ratio=1.0, terminated=rule)
    buffer.add(trajectory(0, 5, episode=1), version=0)
    buffer.add(trajectory(50, 3, episode=2, end="terminated"), version=0)
    batch = draw(buffer)
    reached = batch["next_obs.achieved_goal"][:, 0] == batch["obs.desired_goal"][:, 0]
    if expected is None:
        np.testing.assert_array_equal(batch["terminated"], reached)
    else:
        assert set(batch["action"][batch["terminated"]].tolist()) == expected


def test_sums_over_several_steps_are_of_the_new_goal_and_stop_where_it_ends_the_episode() -> None:
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


def test_a_sum_does_not_go_on_beyond_the_goal_that_ends_its_episode() -> None:
    buffer = make(ratio=1.0, strategy="episode", n_step=3, terminated="reached")
    buffer.add(trajectory(0, 5, episode=1, end="truncated"), version=0)
    batch = draw(buffer)
    row = int(np.flatnonzero((batch["action"] == 1) & (batch["obs.desired_goal"][:, 0] == 3))[0])
    # Step 1 misses the goal and step 2 reaches it; step 3 is of no matter.
    assert (batch["reward"][row], batch["discount"][row], batch["terminated"][row]) == (-1.0, 0.25, True)
    assert batch["next_obs.state"][row, 0] == 3


def test_of_an_episode_that_is_partly_overwritten_what_is_held_counts() -> None:
    buffer = make(size=6, ratio=1.0, strategy="episode")
    for start in range(0, 40, 4):
        buffer.add(trajectory(start, 4, episode=1, offset=start), version=0)
    assert set(draw(buffer)["obs.desired_goal"][:, 0].astype(int).tolist()) == set(range(35, 41))
    assert len(buffer._episodes._numbers[0]) < 20, "what is gone is forgotten in time"


def test_episodes_that_are_gone_are_forgotten() -> None:
    buffer = make(size=6)
    for episode in range(100):
        buffer.add(trajectory(episode, 2, episode=episode, end="terminated"), version=0)
        buffer.add(trajectory(episode, 1, episode=1000, offset=episode), version=0)
    assert len(buffer._episodes._numbers) < 5


def test_the_environment_s_own_reward_is_used_where_nothing_else_is_said() -> None:
    provided = Provided(goal_reward=lambda achieved, desired: -np.abs(achieved - desired)[:, 0])
    batch = draw(filled(ratio=1.0, reward="environment", provided=provided))
    np.testing.assert_array_equal(
        batch["reward"], -np.abs(batch["next_obs.achieved_goal"] - batch["obs.desired_goal"])[:, 0]
    )
    assert len(np.unique(batch["reward"])) > 3


def test_without_a_reward_for_goals_one_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"buffer.reward is environment, and there is none .*; set it to distance"):
        make(reward="environment")
    with pytest.raises(ConfigError, match="no goal reward is named 'distanse'; did you mean distance"):
        make(reward="distanse")


def test_a_reward_may_be_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GOAL_REWARDS, "_own", {"twice": lambda threshold: lambda a, d: 2 * distance(threshold)(a, d)})
    assert set(draw(filled(ratio=1.0, reward="twice"))["reward"].tolist()) == {0, -2}


def test_a_reward_of_single_goals_is_refused() -> None:
    provided = Provided(goal_reward=lambda achieved, desired: np.float32(1))
    with pytest.raises(SpecError, match=r"the reward of 5 goals has the shape \(\); it should take many goals at once"):
        draw(filled(ratio=1.0, reward="environment", provided=provided), rows=5)


def test_observations_without_goals_are_refused() -> None:
    columns = {"obs.state": np.zeros((2, 1)), "reward": np.zeros(1), "action": np.zeros(1)}
    with pytest.raises(ConfigError, match="needs observations named achieved_goal and desired_goal; there are: state"):
        make().add(Trajectory(0, columns), version=0)
