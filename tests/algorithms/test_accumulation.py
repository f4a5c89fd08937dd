"""Gradient accumulation: a minibatch that is split into parts gives the same update as the whole minibatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl4sys.algorithms.accumulation import PartResults, split_rows
from rl4sys.algorithms.windows import VALID, gather_windows, split_windows
from rl4sys.buffers.base import Batch
from rl4sys.errors import ConfigError
from rl4sys.learner.config import (
    LearnerConfig,
    algorithm_setup,
    parse_algorithm,
    parse_buffer,
    parse_networks,
)
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Box, Discrete, Spec

SMALL = {"type": "mlp", "hidden_dims": [12]}
DISCRETE = Spec({"state": Box((5,))}, Discrete(4))
BOUNDED = Spec({"state": Box((5,))}, Box((2,), low=(-1.0, -2.0), high=(1.0, 2.0)))
CASES: dict[str, tuple[str, Spec, dict[str, Any]]] = {
    "ppo": ("ppo", DISCRETE, {"minibatch_size": 32, "epochs": 2, "entropy_coef": 0.01}),
    "ppo continuous": ("ppo", BOUNDED, {"minibatch_size": 32, "epochs": 2, "value_clip": 0.2}),
    "ppo with unequal steps": (
        "ppo",
        DISCRETE,
        {"minibatch_size": 32, "gradient_steps": 2, "critic_gradient_steps": 5},
    ),
    "rpo": ("rpo", BOUNDED, {"minibatch_size": 32, "epochs": 2}),
    "a2c": ("a2c", DISCRETE, {"normalize_advantage": True, "entropy_coef": 0.01}),
    "dqn": ("dqn", DISCRETE, {}),
    "c51": ("c51", DISCRETE, {}),
    "qr_dqn": ("qr_dqn", DISCRETE, {}),
    "rainbow": ("rainbow", DISCRETE, {}),
    "sac": ("sac", BOUNDED, {}),
    "sac discrete": ("sac", DISCRETE, {}),
    "td3": ("td3", BOUNDED, {"policy_delay": 1}),
    "ddpg": ("ddpg", BOUNDED, {}),
    "sql": ("sql", BOUNDED, {"particles": 6, "value_samples": 5}),
    "iql": ("iql", BOUNDED, {}),
    "bc": ("bc", DISCRETE, {"entropy_coef": 0.01}),
}


def make(name: str, spec: Spec, networks: dict[str, Any] | None = None, **options: Any) -> Any:
    roles = ALGORITHMS.get(name).roles
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name, **options}),
        networks=parse_networks({**dict.fromkeys(roles, SMALL), **(networks or {})}, name),
        buffer=parse_buffer({"size": 64}, name),
        backend="torch",
        total_timesteps=1000,
    )
    return ALGORITHMS.get(name)(algorithm_setup(spec, config, np.random.SeedSequence(3)))


def make_batch(spec: Spec, rows: int = 70) -> Batch:
    rng = np.random.default_rng(1)
    batch: dict[str, Any] = {
        f"{prefix}state": rng.normal(size=(rows, 5)).astype(np.float32) for prefix in ("obs.", "next_obs.")
    }
    continuous = isinstance(spec.action, Box)
    batch["action"] = rng.uniform(-1, 1, (rows, 2)).astype(np.float32) if continuous else rng.integers(0, 4, rows)
    batch["reward"] = rng.normal(size=rows).astype(np.float32)
    batch["log_prob"] = np.log(rng.uniform(0.1, 0.9, rows)).astype(np.float32)
    batch["last"] = rng.random(rows) < 0.1
    batch["last"][-1] = True
    batch["terminated"], batch["ended"] = batch["last"] & (rng.random(rows) < 0.5), batch["last"]
    batch["staleness"] = rng.integers(0, 2, rows)
    batch["discount"] = np.full(rows, 0.9, np.float32)
    batch["weight"] = rng.uniform(0.5, 1.5, rows).astype(np.float32)
    return batch


def arrays_of(state: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(state, dict):
        return [array for value in state.values() for array in arrays_of(value)]
    if isinstance(state, list | tuple):
        return [array for value in state for array in arrays_of(value)]
    return [np.asarray(state)] if isinstance(state, np.ndarray | torch.Tensor) else []


def assert_same_updates(whole: Any, parts: Any, batch: Batch) -> None:
    start = [array.copy() for array in arrays_of(whole.state())]
    for step in (1, 2):
        expected, computed = whole.update(batch, step), parts.update(batch, step)
        assert computed.metrics.keys() == expected.metrics.keys()
        for name, value in computed.metrics.items():
            assert value == pytest.approx(expected.metrics[name], rel=1e-4, abs=1e-5), name
        for name, column in expected.feedback.items():
            np.testing.assert_allclose(computed.feedback[name], column, rtol=1e-4, atol=1e-5)
    finish, again = arrays_of(whole.state()), arrays_of(parts.state())
    assert any(not np.array_equal(before, after) for before, after in zip(start, finish, strict=False))
    for after, other in zip(finish, again, strict=True):
        np.testing.assert_allclose(other, after, rtol=0, atol=1e-5)


@pytest.mark.parametrize("accumulate", [2, 3, 1000])
@pytest.mark.parametrize("case", CASES)
def test_split_minibatch_gives_the_same_update(case: str, accumulate: int) -> None:
    name, spec, options = CASES[case]
    whole, parts = make(name, spec, **options), make(name, spec, accumulate=accumulate, **options)
    assert_same_updates(whole, parts, make_batch(spec))


def test_split_minibatch_gives_the_same_update_with_a_shared_trunk() -> None:
    networks = {"trunk": SMALL, "actor": {"hidden_dims": []}, "critic": {"hidden_dims": []}}
    whole, parts = (make("ppo", DISCRETE, networks, epochs=2, accumulate=n) for n in (1, 3))
    assert_same_updates(whole, parts, make_batch(DISCRETE))


def test_split_minibatch_gives_the_same_update_with_a_recurrent_actor() -> None:
    networks = {"actor": {"type": "gru", "hidden_dims": [6]}}
    options = {"epochs": 2, "minibatch_size": 40, "window": 4}
    whole, parts = (make("ppo", DISCRETE, networks, accumulate=n, **options) for n in (1, 3))
    batch = dict(make_batch(DISCRETE))
    batch["memory"] = np.zeros((int(batch["last"].sum()), whole._networks.actor.memory_size), np.float32)
    assert_same_updates(whole, parts, batch)


def test_each_minibatch_row_is_in_exactly_one_part() -> None:
    rows = {"a": torch.arange(7), "b": torch.arange(14).reshape(7, 2)}
    parts = split_rows(rows, 3)
    assert sum(share for share, _ in parts) == pytest.approx(1)
    for name, column in rows.items():
        assert torch.equal(torch.cat([part[name] for _, part in parts]), column)
    assert [len(part["a"]) / 7 for _, part in parts] == [share for share, _ in parts]


def test_windows_are_not_split_across_parts() -> None:
    rollout = {"obs.state": torch.arange(10.0).unsqueeze(1), "reward": torch.arange(10.0)}
    last = np.array([False, False, True, False, False, False, False, False, False, True])
    rows = gather_windows(rollout, split_windows(last, 4))
    parts = split_rows(rows, 2)
    assert [part[VALID].sum().item() for _, part in parts] == [len(part["reward"]) for _, part in parts]
    assert torch.equal(torch.cat([part["reward"] for _, part in parts]), rows["reward"])
    assert [share for share, _ in parts] == [0.7, 0.3]


def test_metrics_of_parts_are_weighted_by_their_rows() -> None:
    results = PartResults()
    results.add(0.25, {"loss": 4.0}, error=torch.tensor([1.0]))
    results.add(0.75, {"loss": 8.0}, error=torch.tensor([2.0, 3.0, 4.0]))
    assert results.means == {"loss": 7.0}
    assert results.column("error").tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("name", ["trpo", "reinforce"])
def test_algorithm_without_minibatches_rejects_accumulate_option(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm\.accumulate is not a setting of {name}.*remove it"):
        parse_algorithm({"name": name, "accumulate": 2})
