"""Updates of SAC, TD3, DDPG and DQN in the native core match torch."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl4sys.algorithms.base import AlgorithmSetup, Backend
from rl4sys.algorithms.ddpg import DDPG
from rl4sys.algorithms.dqn import DQN
from rl4sys.algorithms.native.network import CoreNetwork
from rl4sys.algorithms.sac import SAC
from rl4sys.algorithms.td3 import TD3
from rl4sys.buffers.base import Batch
from rl4sys.buffers.uniform import UniformConfig
from rl4sys.diagnostics.inspection import Inspection
from rl4sys.diagnostics.stopwatch import Stopwatch
from rl4sys.errors import NumericalError
from rl4sys.networks.base import Blueprint
from rl4sys.networks.mlp import MLP, MLPConfig
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import MASK, Box, Discrete, Spec, encoded_size

pytestmark = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

Learning: TypeAlias = SAC | TD3 | DQN

ALGORITHMS: dict[str, type[SAC] | type[TD3] | type[DQN]] = {"sac": SAC, "td3": TD3, "ddpg": DDPG, "dqn": DQN}


def make(name: str, backend: Backend, spec: Spec, network: dict[str, Any] | None = None, **options: Any) -> Learning:
    algorithm = ALGORITHMS[name]
    config: Any = algorithm.Config.model_validate({"name": name, "lr": 1e-3, **options})
    networks = {
        role: MLPConfig.model_validate({"hidden_dims": hidden, "activation": "relu", **(network or {})})
        for role, hidden in (("actor", [24, 10]), ("critic", [17, 30]))
        if role in algorithm.roles
    }
    buffer = UniformConfig(type="uniform", size=64)
    seed = np.random.SeedSequence(3)
    return algorithm(AlgorithmSetup(spec, config, networks, buffer, seed, backend=backend, total_timesteps=10**6))


def make_spec(name: str, size: int = 5, actions: int = 3, *, masked: bool = False) -> Spec:
    if name == "dqn":
        mask = {MASK: Box((actions,), "bool")} if masked else {}
        return Spec({"more": Box((2,)), "state": Box((size,)), **mask}, Discrete(actions))
    low, high = tuple(-1.0 - i for i in range(actions)), tuple(2.0 + i for i in range(actions))
    return Spec({"more": Box((2,)), "state": Box((size,))}, Box((actions,), low=low, high=high))


def make_batch(spec: Spec, rows: int, *, weighted: bool = False, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    batch: dict[str, Any] = {
        f"{prefix}{name}": rng.normal(size=(rows, *space.shape)).astype(space.dtype)
        for prefix in ("obs.", "next_obs.")
        for name, space in spec.observation.items()
        if name != MASK
    }
    if isinstance(spec.action, Discrete):
        batch["action"] = rng.integers(0, spec.action.choices, rows)
    else:
        assert isinstance(spec.action, Box)
        batch["action"] = rng.uniform(*spec.action.bounds(), (rows, spec.action.size)).astype(np.float32)
    if MASK in spec.observation:
        batch["obs.mask"] = batch["next_obs.mask"] = rng.random((rows, encoded_size(spec.action))) < 0.5
        batch["obs.mask"][:, 0] = True
    batch["reward"] = rng.normal(size=rows).astype(np.float32)
    batch["discount"] = rng.uniform(0.5, 1, rows).astype(np.float32)
    batch["terminated"] = rng.random(rows) < 0.2
    if weighted:
        batch["weight"] = rng.uniform(0.1, 1, rows).astype(np.float32)
    return batch


def both(name: str, spec: Spec, network: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    native, reference = (make(name, backend, spec, network, **options) for backend in ("native", "torch"))
    assert native._core_update() is not None
    assert reference._core_update() is None
    return native, reference


def float_state(algorithm: Learning) -> dict[str, Tensor]:
    """Return all float arrays of the state: weights, target networks and optimizer state."""
    found: dict[str, Tensor] = {}

    def walk(tree: Any, path: str) -> None:
        if isinstance(tree, dict):
            for key, value in tree.items():
                walk(value, f"{path}.{key}")
        elif isinstance(tree, list | tuple):
            for index, value in enumerate(tree):
                walk(value, f"{path}.{index}")
        elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f":
            found[path] = torch.from_numpy(np.array(tree))

    walk(dict(algorithm.state()), "")
    return found


def assert_same(native: Learning, reference: Learning) -> None:
    computed, expected = float_state(native), float_state(reference)
    assert computed.keys() == expected.keys()
    assert len(computed) >= 8
    for path, values in computed.items():
        if values.numel():
            tolerance = 1e-5 * max(1.0, float(expected[path].abs().max()))
            assert float((values - expected[path]).abs().max()) <= tolerance, path
    assert native.state()["rng"] == reference.state()["rng"]


def compare(native: Learning, reference: Learning, batch: Batch, updates: int = 2) -> None:
    start = float_state(native)
    for _ in range(updates):
        computed, expected = native.update(batch, steps=10**5), reference.update(batch, steps=10**5)
        assert computed.metrics.keys() == expected.metrics.keys()
        for name, value in computed.metrics.items():
            assert value == pytest.approx(expected.metrics[name], rel=2e-4, abs=2e-5), name
        np.testing.assert_allclose(computed.feedback["priority"], expected.feedback["priority"], rtol=2e-4, atol=2e-5)
    assert_same(native, reference)
    moved = [
        float((float_state(native)[path] - values).abs().max())
        for path, values in start.items()
        if "actor" in path or "critic" in path
    ]
    assert max(moved) > 1e-4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_core_update_matches_torch(name: str, weighted: bool) -> None:
    spec = make_spec(name)
    compare(*both(name, spec), make_batch(spec, 50, weighted=weighted), updates=4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sac", {"max_grad_norm": 0.1}),
        ("sac", {"max_grad_norm": "auto"}),
        ("sac", {"temperature": 0.3}),
        ("sac", {"actor_lr": 1e-2, "temperature_lr": 3e-3}),
        ("td3", {"actor_lr": 1e-2}),
        ("ddpg", {"actor_lr": 1e-4}),
        ("sac", {"reward_scale": 5.0, "target_update_interval": 2}),
        ("td3", {"max_grad_norm": 0.1, "policy_delay": 1}),
        ("td3", {"max_grad_norm": "auto"}),
        ("td3", {"policy_delay": 3, "target_noise": 0.0}),
        ("td3", {"target_noise": 1.0, "target_noise_clip": 0.1}),
        ("dqn", {"max_grad_norm": 0.01}),
        ("dqn", {"max_grad_norm": "auto"}),
        ("dqn", {"double": False, "reward_scale": 3.0}),
        ("dqn", {"tau": 0.3, "target_update_interval": 1}),
    ],
    ids=str,
)
def test_core_update_matches_torch_with_every_option(name: str, options: dict[str, Any]) -> None:
    spec = make_spec(name)
    compare(*both(name, spec, **options), make_batch(spec, 40), updates=3)


@pytest.mark.parametrize("network", [{"layer_norm": True}, {"activation": "tanh"}, {"activation": "elu"}], ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_core_update_matches_torch_with_every_supported_network(name: str, network: dict[str, Any]) -> None:
    spec = make_spec(name)
    compare(*both(name, spec, network), make_batch(spec, 60))


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(list(ALGORITHMS)),
    size=st.integers(1, 30),
    actions=st.integers(1, 9),
    hidden=st.lists(st.integers(1, 70), max_size=3),
    rows=st.integers(1, 200),
    masked=st.booleans(),
)
def test_core_update_matches_torch_for_any_shape(
    name: str, size: int, actions: int, hidden: list[int], rows: int, masked: bool
) -> None:
    spec = make_spec(name, size, actions, masked=masked)
    native, reference = both(name, spec, {"hidden_dims": hidden}, lr=1e-4)
    batch = make_batch(spec, rows, seed=rows)
    for algorithm in (native, reference):
        algorithm.update(batch, steps=0)
        algorithm.update(batch, steps=0)
    assert_same(native, reference)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_non_finite_update_raises_an_error_and_keeps_the_state(name: str) -> None:
    spec = make_spec(name)
    native, _ = both(name, spec)
    batch = dict(make_batch(spec, 20))
    batch["reward"] = np.full(20, np.inf, np.float32)
    before = float_state(native)
    with pytest.raises(NumericalError, match="td"):
        native.update(batch, steps=0)
    after = float_state(native)
    assert all(torch.equal(values, after[path]) for path, values in before.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_run_in_torch_while_hooks_are_registered(name: str) -> None:
    native, _ = both(name, make_spec(name))
    inspection = Inspection(native, Stopwatch(iter(map(float, range(10**9))).__next__))
    with inspection.installed():
        assert native._core_update() is None
    assert native._core_update() is not None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_restored_algorithm_continues_with_identical_updates(name: str) -> None:
    """Loading a state moves tensors, so the data addresses stored by the core become invalid."""
    spec = make_spec(name)
    native, again = (make(name, "native", spec) for _ in range(2))
    batch = make_batch(spec, 32)
    native.update(batch, steps=0)
    again.update(make_batch(spec, 32, seed=9), steps=0)
    again.restore(native.state())
    for _ in range(3):
        native.update(batch, steps=0)
        again.update(batch, steps=0)
    computed, expected = float_state(native), float_state(again)
    assert all(torch.equal(values, expected[path]) for path, values in computed.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_batch_columns_of_other_dtypes_and_strides_are_converted(name: str) -> None:
    spec = make_spec(name)
    plain = make_batch(spec, 40, weighted=True)
    wide = {
        key: np.asarray(column, np.float64) if column.dtype == np.float32 else column for key, column in plain.items()
    }
    strided = {key: np.repeat(column, 2, axis=0)[::2] for key, column in plain.items()}
    native, other, another = (make(name, "native", spec) for _ in range(3))
    for algorithm, batch in ((native, plain), (other, wide), (another, strided)):
        algorithm.update(batch, steps=0)
        algorithm.update(batch, steps=0)
    assert_same(other, native)
    assert_same(another, native)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_action_out_of_range_is_rejected_and_keeps_the_state(wrong: int) -> None:
    spec = make_spec("dqn")
    native = make("dqn", "native", spec)
    batch = dict(make_batch(spec, 20))
    batch["action"] = np.array([*batch["action"][:-1], wrong])
    before = float_state(native)
    with pytest.raises(IndexError, match=f"action {wrong} is out of range; expected 0 to 2"):
        native.update(batch, steps=0)
    after = float_state(native)
    assert all(torch.equal(values, after[path]) for path, values in before.items())


class Doubled(MLP):
    """Network that changes the output of its base class."""

    def forward(self, observation: Any) -> Tensor:
        return 2 * super().forward(observation)


def test_subclass_of_supported_network_runs_in_torch() -> None:
    network = Doubled(MLPConfig(hidden_dims=[4]), Blueprint(make_spec("dqn"), 3))
    known = MLP(MLPConfig(hidden_dims=[4]), Blueprint(make_spec("dqn"), 3))
    for one in (network, known):
        assert one.compute_natively()
    assert CoreNetwork.of(network) is None
    assert CoreNetwork.of(known) is not None
    known.output.bias.requires_grad = False
    assert CoreNetwork.of(known) is None, "the core would train a frozen bias"
