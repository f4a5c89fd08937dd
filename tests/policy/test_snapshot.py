"""Snapshots: round trip, equality with the torch policy, and damaged data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys import tensors
from rl4sys.client import Draws, load_policy
from rl4sys.errors import SpecError
from rl4sys.networks.base import Blueprint, build_network
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.mlp import MLPConfig
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.normalization import NormalizedPolicy, ObservationNormalizer
from rl4sys.policy.program import ACTIVATIONS, Operation
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Columns, Discrete, Spec
from rl4sys.trajectory import Trajectory

MASKED = Spec({"state": Box((5,)), "grid": Box((2, 2)), "mask": Box((3,), "bool")}, Discrete(3))
CONTINUOUS = Spec({"state": Box((5,))}, Box((2,), low=(-1.0,), high=(1.0,)))


def observation(spec: Spec, rows: int) -> Columns:
    rng = np.random.default_rng(0)
    columns = {
        name: rng.normal(size=(rows, *box.shape)).astype(np.float32)
        for name, box in spec.observation.items()
        if name != "mask"
    }
    if spec.masked:
        mask = rng.random((rows, 3)) < 0.6
        mask[:, 1] = True
        columns["mask"] = mask
    return columns


def live_policy(spec: Spec, activation: str, *, dueling: bool = False) -> TorchPolicy:
    config = MLPConfig(hidden_dims=[16, 7], activation=activation)  # type: ignore[arg-type]
    if isinstance(spec.action, Discrete):
        network = build_network(config, Blueprint(spec, 4 if dueling else 3), seed=1)
        network = Dueling(network, 3) if dueling else network
        return TorchPolicy(spec, network, Operation("categorical"))
    network = build_network(config, Blueprint(spec, 2), seed=1)
    return TorchPolicy(spec, network, Operation("gaussian", ("log_std",)), {"log_std": np.zeros(2, np.float32)})


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("spec", "dueling"), [(MASKED, False), (MASKED, True), (CONTINUOUS, False)])
def test_snapshot_acts_like_the_live_policy(spec: Spec, dueling: bool, activation: str) -> None:
    live = live_policy(spec, activation, dueling=dueling)
    frozen = SnapshotPolicy(Snapshot.from_bytes(live.snapshot(3).to_bytes()))
    seen = observation(spec, 200)
    expected, got = live.act(seen, {}, Draws(9)), frozen.act(seen, {}, Draws(9))
    np.testing.assert_allclose(got.action, expected.action, atol=2e-6)
    np.testing.assert_allclose(got.log_prob, expected.log_prob, atol=2e-6)
    assert len(np.unique(got.action)) > 1, "the actions should vary"


def test_greedy_policy_takes_the_best_action() -> None:
    live = live_policy(CONTINUOUS, "tanh")
    seen = observation(CONTINUOUS, 4)
    with torch.no_grad():
        mean = live.network({"state": torch.from_numpy(seen["state"])}).numpy()
    np.testing.assert_array_equal(live.greedy().act(seen, {}, Draws(0)).action, mean)
    frozen = SnapshotPolicy(live.snapshot(0)).greedy().act(seen, {}, Draws(0))
    np.testing.assert_allclose(frozen.action, mean, atol=1e-6)


def test_snapshot_includes_normalization() -> None:
    normalizer = ObservationNormalizer(MASKED)
    seen = observation(MASKED, 50)
    columns = {f"obs.{name}": 5 * column + 3 if name != "mask" else column for name, column in seen.items()}
    normalizer.update(Trajectory(0, columns | {"reward": np.zeros(49, np.float32)}))
    normalizer.activate()
    live = NormalizedPolicy(live_policy(MASKED, "tanh"), normalizer)
    frozen = SnapshotPolicy(live.snapshot(1))
    expected, got = live.act(seen, {}, Draws(2)), frozen.act(seen, {}, Draws(2))
    np.testing.assert_array_equal(got.action, expected.action)
    np.testing.assert_allclose(got.log_prob, expected.log_prob, atol=2e-6)
    plain = live_policy(MASKED, "tanh").act(seen, {}, Draws(2))
    assert not np.allclose(plain.log_prob, got.log_prob, atol=1e-3), "normalization should change the log-probabilities"


def test_later_training_does_not_change_a_snapshot() -> None:
    live = live_policy(CONTINUOUS, "tanh")
    frozen = live.snapshot(1)
    before = frozen.content_hash
    with torch.no_grad():
        for parameter in live.network.parameters():
            parameter.add_(1.0)
    assert Snapshot.from_bytes(frozen.to_bytes()).content_hash == before
    assert live.snapshot(2).content_hash != before


def test_policy_is_loaded_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "policy.safetensors").write_bytes(live_policy(CONTINUOUS, "relu").snapshot(7).to_bytes())
    policy = load_policy(tmp_path / "policy.safetensors")
    action, log_prob = policy.decide(np.zeros(5, np.float32), None, Draws(1))
    assert np.shape(action) == (2,)
    assert np.isfinite(log_prob)
    assert policy.version == 7
    assert policy.spec.action.legal(np.array([5.0, -5.0], np.float32)).tolist() == [1.0, -1.0]
    with pytest.raises(SpecError, match=r"cannot read the policy file '.*nothing\.safetensors': No such file"):
        load_policy(tmp_path / "nothing.safetensors")


def test_flipped_bit_in_snapshot_is_detected() -> None:
    blob = bytearray(live_policy(CONTINUOUS, "relu").snapshot(7).to_bytes())
    blob[-3] ^= 4
    with pytest.raises(SpecError, match="do not match their checksum"):
        Snapshot.from_bytes(bytes(blob))


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, 3000), noise=st.binary(min_size=1, max_size=20))
def test_damaged_snapshot_raises_spec_error(place: int, noise: bytes) -> None:
    blob = bytearray(live_policy(CONTINUOUS, "relu").snapshot(7).to_bytes())
    place %= len(blob)
    blob[place : place + len(noise)] = noise
    try:
        Snapshot.from_bytes(bytes(blob))
    except SpecError:
        return


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spec", "5"),
        ("spec", "[" * 100_000),
        ("spec", '{"observation": {"state": {"kind": "box", "shape": [1e999], "dtype": "x", "low": [], "high": []}}}'),
        ("program", "{}"),
        ("program", "[]"),
        ("program", '[{"name": "mode", "weights": [], "options": 3}]'),
        ("program", '[{"name": "normalize", "weights": ["a", "b"], "options": {"limit": NaN}}]'),
        ("version", "one"),
    ],
)
def test_wrong_snapshot_metadata_raises_spec_error(key: str, value: str) -> None:
    weights, metadata = tensors.decode(live_policy(CONTINUOUS, "relu").snapshot(7).to_bytes())
    with pytest.raises(SpecError):
        Snapshot.from_bytes(tensors.encode(weights, {**metadata, key: value}))


def test_program_that_does_not_fit_its_spec_is_rejected() -> None:
    snapshot = live_policy(CONTINUOUS, "relu").snapshot(0)
    with pytest.raises(SpecError, match="the head 'gaussian' does not fit the action space Discrete"):
        Snapshot(0, Spec(CONTINUOUS.observation, Discrete(2)), snapshot.program, snapshot.weights)
    with pytest.raises(SpecError, match="the head 'gaussian' has 2 inputs, but the action space needs 3"):
        Snapshot(0, Spec(CONTINUOUS.observation, Box((3,))), snapshot.program, snapshot.weights)
