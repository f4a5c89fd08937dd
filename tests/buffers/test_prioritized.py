"""Prioritized replay: sampling, importance weights and feedback."""

from __future__ import annotations

import numpy as np
import pytest

from rl4sys.buffers.base import Batch, Demand
from rl4sys.buffers.prioritized import Prioritized, PrioritizedConfig
from rl4sys.buffers.sum_tree import NumpySumTree
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.spec import Box, Discrete, Spec

from .steps import drain, trajectory


def make(size: int = 10, rows: int = 1000, n_step: int = 1, **options: float) -> Prioritized:
    config = PrioritizedConfig(type="prioritized", size=size, **options)  # type: ignore[arg-type]
    return Prioritized(config, Demand(batch_size=rows, n_step=n_step, gamma=0.5))


def draw(buffer: Prioritized, seed: int = 0) -> Batch:
    return buffer.sample(np.random.default_rng(seed), buffer._demand.batch_size)


def set_priorities(buffer: Prioritized, priorities: dict[int, float]) -> None:
    """Set the priorities of steps, given by step number, through `feedback`."""
    numbers = np.array(list(priorities))
    buffer.feedback({"index": numbers}, {"priority": np.array(list(priorities.values()))})


def test_steps_are_sampled_in_proportion_to_priorities() -> None:
    buffer = make(alpha=1.0, epsilon=1e-12)
    buffer.add(trajectory(0, 4), version=0)
    set_priorities(buffer, {0: 1.0, 1: 2.0, 2: 5.0, 3: 0.0})
    counts = np.bincount(draw(buffer)["index"], minlength=4)
    assert np.abs(counts - [125, 250, 625, 0]).max() <= 1, "stratified sampling is exact up to rounding"


def test_alpha_is_the_priority_exponent() -> None:
    buffer = make(alpha=0.5, epsilon=1e-12)
    buffer.add(trajectory(0, 2), version=0)
    set_priorities(buffer, {0: 1.0, 1: 9.0})
    assert np.abs(np.bincount(draw(buffer)["index"]) - [250, 750]).max() <= 1


def test_importance_weights_use_the_exponent_beta() -> None:
    buffer = make(alpha=1.0, beta_start=0.5, beta_steps=8, epsilon=1e-12)
    buffer.add(trajectory(0, 4), version=0)
    set_priorities(buffer, {0: 1.0, 1: 4.0, 2: 4.0, 3: 16.0})
    batch = draw(buffer)
    # After 4 of 8 steps beta is 0.75, and the row with the lowest priority has weight 1.
    expected = np.array([1.0, 4.0**-0.75, 4.0**-0.75, 16.0**-0.75])
    np.testing.assert_allclose(batch["weight"], expected[batch["index"]], rtol=1e-6)
    assert batch["weight"].dtype == np.float32
    buffer.feedback(batch, {"priority": np.ones(1000)})
    buffer.add(trajectory(4, 6, episode=2), version=0)
    set_priorities(buffer, {n: float(2**n) for n in range(10)})
    batch = draw(buffer)
    np.testing.assert_allclose(batch["weight"], 0.5 ** (batch["index"] - batch["index"].min()), rtol=1e-5)


def test_new_steps_get_the_largest_priority() -> None:
    buffer = make(alpha=1.0)
    buffer.add(trajectory(0, 2), version=0)
    set_priorities(buffer, {0: 0.25, 1: 7.0})
    set_priorities(buffer, {1: 0.5})
    buffer.add(trajectory(2, 1, episode=2), version=0)
    assert np.bincount(draw(buffer)["index"])[2] / 1000 == pytest.approx(7 / 7.75, abs=0.01)


def test_overwritten_steps_are_neither_sampled_nor_updated() -> None:
    buffer = make(size=4, alpha=1.0)
    buffer.add(trajectory(0, 4), version=0)
    batch = draw(buffer)
    buffer.add(trajectory(4, 3, episode=2), version=0)
    before = buffer.state()["priorities"]
    buffer.feedback({"index": np.array([0, 1, 2])}, {"priority": np.full(3, 100.0)})
    np.testing.assert_array_equal(buffer.state()["priorities"], before)
    buffer.feedback(batch, {"priority": np.ones(1000)})
    assert set(draw(buffer)["index"].tolist()) == {3, 4, 5, 6}


@pytest.mark.parametrize("steps", [3, 40, 1000])
def test_all_stored_steps_can_be_sampled_after_the_ring_wraps(steps: int) -> None:
    buffer = make(size=17)
    buffer.add(trajectory(0, 5), version=0)
    buffer.add(trajectory(5, steps, episode=1), version=0)
    stored = min(5 + steps, 17)
    assert set(draw(buffer)["action"].tolist()) == set(range(5 + steps - stored, 5 + steps))


def test_n_step_returns_match_hand_computed_values() -> None:
    buffer = make(n_step=3)
    for step in range(4):
        buffer.add(trajectory(step, 1, episode=1, offset=step, end="terminated" * (step == 3)), version=0)
    batch = draw(buffer)
    rows = {int(action): row for row, action in enumerate(batch["action"])}
    found = [(float(batch["reward"][rows[s]]), float(batch["discount"][rows[s]])) for s in range(4)]
    assert found == [(0 + 0.5 + 0.5, 0.125), (1 + 1 + 0.75, 0.125), (2 + 1.5, 0.25), (3, 0.5)]
    assert [bool(batch["terminated"][rows[s]]) for s in range(4)] == [False, True, True, True]


def test_missing_priorities_are_rejected() -> None:
    buffer = make(rows=2)
    buffer.add(trajectory(0, 5), version=0)
    list(zip(range(1), buffer.batches(np.random.default_rng(0)), strict=False))
    with pytest.raises(
        ConfigError, match=r"the algorithm returned no priorities for its last batch; use 'uniform', or let"
    ):
        draw(buffer)
    with pytest.raises(ConfigError, match="returned no priorities"):
        buffer.feedback({}, {"other": np.ones(2)})


def test_native_and_numpy_sum_trees_give_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    native = make(size=50, rows=8)
    monkeypatch.setattr("rl4sys.buffers.prioritized.SumTree", NumpySumTree)
    reference = make(size=50, rows=8)
    assert type(reference._tree) is NumpySumTree
    for start in range(0, 120, 6):
        found = []
        for buffer in (native, reference):
            buffer.add(trajectory(start, 6, episode=start), version=0)
            found.append(drain(buffer, seed=start))
        assert found[0] == found[1] != []


def test_dqn_updates_priorities() -> None:
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "dqn", "learning_starts": 40, "batch_size": 8, "exploration": 0.1}),
        networks=parse_networks({"critic": {"hidden_dims": [8]}}, "dqn"),
        buffer=parse_buffer({"type": "prioritized", "size": 100}, "dqn"),
    )
    spec = Spec({n: Box((1,)) for n in ("state", "achieved_goal", "desired_goal")}, Discrete(200))
    learner = build_learner(spec, config, seed=1)
    for start in range(0, 100, 10):
        learner.learn([trajectory(start, 10, episode=start, end="terminated")])
    priorities = learner.state()["buffer"]["priorities"]
    assert learner.version > 5
    assert len(np.unique(priorities)) > 20


def test_on_policy_algorithms_reject_prioritized_replay() -> None:
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "ppo"}),
        networks={},
        buffer=parse_buffer({"type": "prioritized", "size": 100}, "ppo"),
    )
    with pytest.raises(ConfigError, match="'prioritized', but ppo does not support this buffer type; use 'trajectory'"):
        build_learner(Spec({"state": Box((1,))}, Discrete(2)), config, seed=1)
