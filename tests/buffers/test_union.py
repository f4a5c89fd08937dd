"""Union of pools: shares of a batch, and routing of steps and priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Batch, BufferResources, Demand
from rl4sys.buffers.union import Union, UnionConfig
from rl4sys.errors import ConfigError
from rl4sys.learner.config import parse_buffer
from rl4sys.trajectory import Trajectory

from .steps import trajectory

DEMONSTRATIONS = [trajectory(1000, 30, episode=1, end="terminated")]


def make(
    rows: int = 32, demonstrations: list[Trajectory] = DEMONSTRATIONS, own: str = "uniform", **options: Any
) -> Union:
    pools = {
        "demonstrations": {"share": 0.25, "buffer": {"type": "uniform", "size": 50}},
        "own": {"share": 0.75, "buffer": {"type": own, "size": 40}},
    }
    config = UnionConfig(type="union", **{"pools": pools, **options})
    return Union(config, Demand(batch_size=rows, resources=BufferResources(pools={"demonstrations": demonstrations})))


def one_batch(buffer: Union, seed: int = 0) -> Batch:
    return next(iter(buffer.batches(np.random.default_rng(seed))))


def test_each_pool_gets_its_share_of_a_batch() -> None:
    buffer = make()
    buffer.add(trajectory(0, 10), version=0)
    batch = one_batch(buffer)
    assert (batch["action"] >= 1000).sum() == 8
    np.testing.assert_array_equal(batch["pool"] == 0, batch["action"] >= 1000)


def test_fractional_shares_are_exact_on_average() -> None:
    buffer = make(rows=3)
    buffer.add(trajectory(0, 1000), version=0)
    rng = np.random.default_rng(0)
    counts = [int((batch["pool"] == 0).sum()) for batch in buffer.batches(rng)]
    assert set(counts) == {0, 1}
    assert np.mean(counts) == pytest.approx(0.75, abs=0.05)


def test_share_of_an_empty_pool_is_divided_among_other_pools() -> None:
    buffer = make(demonstrations=[])
    buffer.add(trajectory(0, 10), version=0)
    assert (one_batch(buffer)["pool"] == 1).all()


def test_new_steps_are_added_to_the_receiving_pool() -> None:
    buffer = make()
    assert buffer.steps_to_next_update() == 1, "initial trajectories do not count towards the schedule"
    for start in range(0, 200, 20):
        buffer.add(trajectory(start, 20, episode=start), version=0)
    drawn = np.concatenate([batch["action"] for batch in buffer.batches(np.random.default_rng(0))])
    assert set(drawn[drawn >= 1000].tolist()) == set(range(1000, 1030)), "demonstrations are not overwritten"
    assert drawn[drawn < 1000].min() >= 160


def test_priority_feedback_is_passed_to_the_pool_of_each_row() -> None:
    buffer = make(own="prioritized")
    buffer.add(trajectory(0, 10), version=0)
    batch = one_batch(buffer)
    assert batch["weight"].shape == (32,)
    buffer.feedback(batch, {"priority": np.where(batch["action"] == 3, 50.0, 0.0)})
    assert (batch["action"] == 3).any()
    again = buffer._sample(np.random.default_rng(1))
    assert (again["action"] == 3).sum() > 15
    with pytest.raises(ConfigError, match="returned no priorities"):
        buffer._sample(np.random.default_rng(2))


def test_priorities_of_a_pool_do_not_affect_other_pools() -> None:
    pools = {name: {"share": 1, "buffer": {"type": "prioritized", "size": 40}} for name in ("demonstrations", "own")}
    buffer = make(pools=pools)
    buffer.add(trajectory(0, 30), version=0)
    batch = one_batch(buffer)
    buffer.feedback(batch, {"priority": np.where(batch["pool"] == 1, 50.0, 1.0)})
    found = [pool["priorities"].max() for pool in buffer.state()["pools"].values()]
    assert found[0] == pytest.approx(1.0, abs=1e-5)
    assert found[1] > 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"receives": "other"}, "receives is 'other'; expected one of the pools: a"),
        ({"pools": {}}, "pools"),
        (
            {"pools": {"own": {"share": 1, "buffer": {"type": "trajectory", "size": 1}}}},
            "the buffer type of a pool is 'trajectory'; expected one of uniform, prior",
        ),
        ({"pools": {"own": {"share": 1, "buffer": {"sise": 1}}}}, "sise is not a setting; did you mean size"),
        ({"pools": {"own": {"share": 0, "buffer": {"size": 1}}}}, "share"),
    ],
)
def test_invalid_pool_settings_are_rejected(options: dict[str, Any], message: str) -> None:
    settings = {"type": "union", "pools": {"a": {"share": 1, "buffer": {"size": 5}}}, "receives": "a", **options}
    if "pools" in options:
        settings["receives"] = "own"
    with pytest.raises(ConfigError, match=message):
        parse_buffer(settings, "dqn")


def test_pool_size_defaults_to_the_union_size() -> None:
    pools = {"own": {"share": 1}, "old": {"share": 2, "buffer": {"type": "prioritized", "size": 7}}}
    config = parse_buffer({"type": "union", "size": 30, "pools": pools}, "dqn")
    assert isinstance(config, UnionConfig)
    assert [(pool.buffer.type, pool.buffer.size) for pool in config.pools.values()] == [
        ("uniform", 30),
        ("prioritized", 7),
    ]
    assert parse_buffer(config.model_dump(mode="json"), "dqn") == config, "a stored config can be parsed again"


def test_trajectories_for_an_unknown_pool_are_rejected() -> None:
    config = UnionConfig(type="union", pools={"own": {"share": 1, "buffer": {"size": 5}}})  # type: ignore[dict-item]
    with pytest.raises(
        ConfigError, match=r"trajectories were given for pool 'x', but buffer.pools has no such pool; pools: own"
    ):
        Union(config, Demand(resources=BufferResources(pools={"x": []})))
