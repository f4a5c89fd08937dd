"""Buffers: one contract for all, then what is particular to each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.buffers.base import Batch, Buffer, BufferConfig, Demand
from rl4sys.buffers.replay import Replay
from rl4sys.buffers.rollout import Rollout, RolloutConfig
from rl4sys.trajectory import Trajectory


def trajectory(
    first: int, steps: int, *, episode: int = 0, offset: int = 0, version: int = 0, end: str = ""
) -> Trajectory:
    """Steps numbered from ``first``: observation, action and reward all say which."""
    numbers = np.arange(first, first + steps)
    columns = {
        "obs.state": np.arange(first, first + steps + 1, dtype=np.float32)[:, None],
        "action": numbers,
        "reward": numbers.astype(np.float32),
        "log_prob": np.zeros(steps, np.float32),
    }
    return Trajectory(version, columns, episode, offset, terminated=end == "terminated", truncated=end == "truncated")


BUFFERS: dict[str, Callable[[], Buffer]] = {
    "trajectory": lambda: Rollout(RolloutConfig(type="trajectory", size=8), Demand()),
    "uniform": lambda: Replay(
        BufferConfig(type="uniform", size=20),
        Demand(batch_size=4, learning_starts=6, train_frequency=3, gradient_steps=2, n_step=2, gamma=0.5),
    ),
}


@pytest.fixture(params=BUFFERS)
def make_buffer(request: pytest.FixtureRequest) -> Callable[[], Buffer]:
    return BUFFERS[request.param]


def drain(buffer: Buffer, seed: int = 0) -> list[dict[str, list[float]]]:
    return [{name: np.array(c).tolist() for name, c in b.items()} for b in buffer.batches(np.random.default_rng(seed))]


def test_a_buffer_says_exactly_when_a_batch_is_due(make_buffer: Callable[[], Buffer]) -> None:
    buffer, number = make_buffer(), 0
    for _ in range(4):
        for missing in range(buffer.wants(), 0, -1):
            assert buffer.wants() == missing
            assert drain(buffer) == []
            assert buffer.add(trajectory(number, 1, episode=number, end="terminated"), version=0) == 1
            number += 1
        assert drain(buffer) != []
        assert drain(buffer) == [], "what was given is no longer due"


def test_a_restored_buffer_goes_on_identically(make_buffer: Callable[[], Buffer]) -> None:
    one, other = make_buffer(), make_buffer()
    for number in range(0, 25, 5):
        one.add(trajectory(number, 5, episode=1, offset=number), version=0)
        drain(one)
    one.add(trajectory(25, 3, episode=1, offset=25), version=0)
    other.restore(one.state())
    for buffer in (one, other):
        buffer.add(trajectory(28, 6, episode=1, offset=28, end="truncated"), version=0)
    batches = drain(one, seed=5)
    assert batches != [], "buffers with nothing to give are equal too easily"
    assert drain(other, seed=5) == batches


def test_the_state_of_a_buffer_is_a_copy(make_buffer: Callable[[], Buffer]) -> None:
    buffer = make_buffer()
    buffer.add(trajectory(0, 4), version=0)
    state = buffer.state()
    saved = {name: column.copy() for name, column in state["columns"].items()}
    drain(buffer)
    buffer.add(trajectory(50, 20, episode=3), version=0)
    assert all(np.array_equal(state["columns"][name], column) for name, column in saved.items())


def test_a_rollout_is_every_step_in_order_and_then_forgotten() -> None:
    buffer = BUFFERS["trajectory"]()
    buffer.add(trajectory(0, 3, end="terminated"), version=0)
    buffer.add(trajectory(3, 4, episode=1, end="truncated"), version=0)
    buffer.add(trajectory(7, 5, episode=2), version=0)
    (batch,) = drain(buffer)
    assert batch["action"] == list(range(12)), "a rollout may be longer than asked for, and loses nothing"
    assert [i for i, last in enumerate(batch["last"]) if last] == [2, 6, 11]
    assert [i for i, terminated in enumerate(batch["terminated"]) if terminated] == [2]
    assert [i for i, ended in enumerate(batch["ended"]) if ended] == [2, 6]
    assert batch["next_obs.state"] == [[float(i + 1)] for i in range(12)]
    assert buffer.wants() == 8


def test_a_rollout_refuses_what_an_outdated_policy_did() -> None:
    strict, lenient = (
        Rollout(RolloutConfig(type="trajectory", size=99, max_staleness=lag), Demand()) for lag in (0, 1)
    )
    assert [strict.add(trajectory(0, 4, version=v), version=7) for v in (7, 6, 5)] == [4, 0, 0]
    assert [lenient.add(trajectory(0, 4, version=v), version=7) for v in (7, 6, 5)] == [4, 4, 0]


def test_a_rollout_refuses_what_a_policy_of_another_lineage_did() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=99, max_staleness=5), Demand())
    assert [buffer.add(trajectory(0, 4, version=v), version=7) for v in (8, 1000, 7)] == [0, 0, 4]


def test_a_rollout_says_how_stale_each_step_is() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=6, max_staleness=5), Demand())
    for version, steps in ((7, 2), (4, 3), (6, 1)):
        buffer.add(trajectory(0, steps, version=version), version=7)
    (batch,) = buffer.batches(np.random.default_rng(0))
    assert batch["staleness"].tolist() == [0, 0, 3, 3, 3, 1]
    assert batch["staleness"].dtype == np.int64


def by_episodes(episodes: int, size: int = 50) -> Rollout:
    return Rollout(RolloutConfig(type="trajectory", size=size, episodes=episodes), Demand())


def test_a_rollout_may_be_complete_when_enough_episodes_have_ended() -> None:
    buffer = by_episodes(2)
    assert buffer.wants() == 50
    buffer.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    buffer.add(trajectory(3, 4, episode=2), version=0)
    assert drain(buffer) == [], "an episode that goes on has not ended"
    assert buffer.wants() == 43
    buffer.add(trajectory(7, 1, episode=2, offset=4, end="truncated"), version=0)
    assert [len(batch["reward"]) for batch in drain(buffer)] == [8]
    buffer.add(trajectory(8, 2, episode=3, end="terminated"), version=0)
    assert drain(buffer) == [], "counting starts anew with each rollout"


def test_a_rollout_by_episodes_is_complete_at_its_size_too() -> None:
    buffer = by_episodes(2, size=5)
    buffer.add(trajectory(0, 6), version=0)
    assert buffer.wants() == 1
    assert [len(batch["reward"]) for batch in drain(buffer)] == [6]


def test_episodes_that_were_refused_do_not_count() -> None:
    buffer = by_episodes(1)
    assert buffer.add(trajectory(0, 3, version=0, end="terminated"), version=1) == 0
    assert drain(buffer) == []


def test_a_restored_rollout_remembers_how_many_episodes_ended() -> None:
    one, other = by_episodes(2), by_episodes(2)
    one.add(trajectory(0, 3, episode=1, end="terminated"), version=0)
    other.restore(one.state())
    for buffer in (one, other):
        assert drain(buffer) == []
        buffer.add(trajectory(3, 2, episode=2, end="terminated"), version=0)
    batches = drain(one)
    assert len(batches) == 1
    assert drain(other) == batches


def replay(size: int = 100, **demand: float) -> Replay:
    return Replay(BufferConfig(type="uniform", size=size), Demand(**{"batch_size": 2000, **demand}))  # type: ignore[arg-type]


def one_batch(buffer: Replay) -> Batch:
    return next(iter(buffer.batches(np.random.default_rng(0))))


def test_replay_owes_its_gradient_steps_for_every_interval() -> None:
    buffer = replay(batch_size=2, learning_starts=10, train_frequency=4, gradient_steps=3)
    assert buffer.wants() == 10
    buffer.add(trajectory(0, 23), version=0)
    assert len(drain(buffer)) == 3 * 4, "due at 10, 14, 18 and 22"
    assert buffer.wants() == 3


def test_replay_draws_every_kept_step_about_equally_and_none_that_was_overwritten() -> None:
    buffer = replay(size=10)
    for number in range(0, 24, 3):
        buffer.add(trajectory(number, 3, episode=number), version=0)
    counts = np.bincount(one_batch(buffer)["action"], minlength=24)
    assert (counts[:14] == 0).all()
    assert counts[14:].min() > 120
    assert counts[14:].max() < 290


def test_n_step_sums_go_on_across_trajectories_of_one_episode() -> None:
    buffer = replay(n_step=3, gamma=0.5)
    # Two episodes arrive in turns, as from two environments, in trajectories of one step.
    for step in range(4):
        end = "terminated" if step == 3 else ""
        buffer.add(trajectory(step, 1, episode=1, offset=step, end=end), version=0)
        buffer.add(trajectory(10 + step, 1, episode=2, offset=step), version=0)
    batch = one_batch(buffer)
    rows = {int(action): row for row, action in enumerate(batch["action"])}

    def outcome(step: int) -> tuple[float, float, float, bool]:
        row = rows[step]
        led_to = float(batch["next_obs.state"][row, 0])
        return float(batch["reward"][row]), float(batch["discount"][row]), led_to, bool(batch["terminated"][row])

    assert outcome(0) == (0 + 0.5 * 1 + 0.25 * 2, 0.125, 3.0, False)
    assert outcome(1) == (1 + 0.5 * 2 + 0.25 * 3, 0.125, 4.0, True)
    assert outcome(2) == (2 + 0.5 * 3, 0.25, 4.0, True)
    assert outcome(3) == (3, 0.5, 4.0, True)
    assert outcome(11) == (11 + 0.5 * 12 + 0.25 * 13, 0.125, 14.0, False)
    assert outcome(12) == (12 + 0.5 * 13, 0.25, 14.0, False), "as far as is known yet"


def test_a_truncated_episode_ends_the_sum_but_is_not_terminated() -> None:
    buffer = replay(n_step=5, gamma=1.0)
    buffer.add(trajectory(0, 2, episode=1, end="truncated"), version=0)
    buffer.add(trajectory(2, 2, episode=2), version=0)
    batch = one_batch(buffer)
    first = int(np.flatnonzero(batch["action"] == 0)[0])
    assert (batch["reward"][first], batch["next_obs.state"][first, 0], batch["terminated"][first]) == (1.0, 2.0, False)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=40),
    n_step=st.integers(1, 5),
)
def test_n_step_sums_never_mix_episodes_however_the_ring_wraps(lengths: list[tuple[int, int]], n_step: int) -> None:
    buffer = replay(size=23, n_step=n_step, gamma=1.0)
    offsets = [0, 0, 0]
    for episode, steps in lengths:
        # Each episode's steps are numbered in a range of its own.
        buffer.add(
            trajectory(1000 * episode + offsets[episode], steps, episode=episode, offset=offsets[episode]), version=0
        )
        offsets[episode] += steps
    batch = one_batch(buffer)
    start, end = batch["action"], batch["next_obs.state"][:, 0].astype(int)
    steps = end - start
    assert (start // 1000 == (end - 1) // 1000).all()
    assert ((steps >= 1) & (steps <= n_step)).all()
    np.testing.assert_array_equal(batch["reward"], steps * start + steps * (steps - 1) / 2)


def test_a_trajectory_longer_than_the_ring_leaves_its_newest_steps() -> None:
    buffer = replay(size=10, n_step=2, gamma=1.0)
    assert buffer.add(trajectory(0, 37), version=0) == 37
    batch = one_batch(buffer)
    assert set(batch["action"].tolist()) == set(range(27, 37))
    assert (batch["next_obs.state"][:, 0] - batch["action"] <= 2).all()


def test_systems_that_fall_silent_are_forgotten() -> None:
    buffer = replay(size=10)
    for episode in range(1000):
        buffer.add(trajectory(episode, 1, episode=episode), version=0)
    assert len(buffer._open_episodes) <= 11
