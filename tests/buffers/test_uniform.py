"""Uniform replay: sampling and n-step returns."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.buffers.base import Batch, Demand
from rl4sys.buffers.uniform import Replay, UniformConfig

from .steps import drain, trajectory


def replay(size: int = 100, **demand: float) -> Replay:
    return Replay(UniformConfig(type="uniform", size=size), Demand(**{"batch_size": 2000, **demand}))  # type: ignore[arg-type]


def one_batch(buffer: Replay) -> Batch:
    return next(iter(buffer.batches(np.random.default_rng(0))))


def test_gradient_steps_are_due_after_every_interval() -> None:
    buffer = replay(batch_size=2, learning_starts=10, train_frequency=4, gradient_steps=3)
    assert buffer.steps_to_next_update() == 10
    buffer.add(trajectory(0, 23), version=0)
    assert len(drain(buffer)) == 3 * 4, "due at 10, 14, 18 and 22"
    assert buffer.steps_to_next_update() == 3


def test_stored_steps_are_sampled_uniformly() -> None:
    buffer = replay(size=10)
    for number in range(0, 24, 3):
        buffer.add(trajectory(number, 3, episode=number), version=0)
    counts = np.bincount(one_batch(buffer)["action"], minlength=24)
    assert (counts[:14] == 0).all()
    assert counts[14:].min() > 120
    assert counts[14:].max() < 290


def test_n_step_sums_continue_across_trajectories() -> None:
    buffer = replay(n_step=3, gamma=0.5)
    # Trajectories of two episodes alternate, as from two environments; each trajectory has one step.
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
    assert outcome(12) == (12 + 0.5 * 13, 0.25, 14.0, False), "the sum ends at the newest step"


def test_truncation_ends_n_step_sum_without_termination() -> None:
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
def test_n_step_sums_never_mix_episodes_after_the_ring_wraps(lengths: list[tuple[int, int]], n_step: int) -> None:
    buffer = replay(size=23, n_step=n_step, gamma=1.0)
    offsets = [0, 0, 0]
    for episode, steps in lengths:
        # Step numbers of different episodes do not overlap.
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


def test_newest_steps_of_a_trajectory_longer_than_the_ring_are_stored() -> None:
    buffer = replay(size=10, n_step=2, gamma=1.0)
    assert buffer.add(trajectory(0, 37), version=0) == 37
    batch = one_batch(buffer)
    assert set(batch["action"].tolist()) == set(range(27, 37))
    assert (batch["next_obs.state"][:, 0] - batch["action"] <= 2).all()


def test_overwritten_unfinished_episodes_are_no_longer_tracked() -> None:
    buffer = replay(size=10)
    for episode in range(1000):
        buffer.add(trajectory(episode, 1, episode=episode), version=0)
    assert len(buffer._ring._open) <= 11
