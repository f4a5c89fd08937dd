"""Updates of PPO and A2C in the native core: those that torch computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl4sys.algorithms.a2c import A2C, A2CConfig
from rl4sys.algorithms.base import Backend, Recipe
from rl4sys.algorithms.core_update import CoreUpdate
from rl4sys.algorithms.inspection import Inspection
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.algorithms.stopwatch import Stopwatch
from rl4sys.buffers.base import Batch
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.errors import NumericalError
from rl4sys.networks.mlp import MLPConfig
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import MASK, Box, Discrete, MultiDiscrete, Space, Spec, numbers_of

pytestmark = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

ACTIONS: dict[str, Space] = {
    "choice": Discrete(5),
    "choices": MultiDiscrete((3, 1, 4)),
    "switches": MultiDiscrete((2, 2, 2)),
    "numbers": Box((3,), low=(-1.0,), high=(1.0,)),
}
NETWORKS: dict[str, Any] = {"actor": {"hidden_dims": [24, 10]}, "critic": {"hidden_dims": [17]}}


def make_ppo(spec: Spec, backend: Backend, network: dict[str, Any], **options: Any) -> PPO:
    config = PPOConfig.model_validate({"name": "ppo", "minibatch_size": 16, "epochs": 3, **options})
    networks = {role: MLPConfig.model_validate({**NETWORKS[role], **network}) for role in NETWORKS}
    buffer = RolloutConfig(type="trajectory", size=64)
    return PPO(
        Recipe(spec, config, networks, buffer, np.random.SeedSequence(3), backend=backend, total_timesteps=10**6)
    )


def make_batch(spec: Spec, rows: int, seed: int = 0) -> Batch:
    """Steps of several trajectories, some of them chosen by an older policy."""
    rng = np.random.default_rng(seed)
    size = spec.observation["state"].size
    batch: dict[str, Any] = {
        f"{prefix}state": rng.normal(size=(rows, size)).astype(np.float32) for prefix in ("obs.", "next_obs.")
    }
    batch["reward"] = rng.normal(size=rows).astype(np.float32)
    batch["last"] = rng.random(rows) < 0.1
    batch["last"][-1] = True
    batch["terminated"] = batch["last"] & (rng.random(rows) < 0.5)
    batch["staleness"] = rng.integers(0, 2, rows)
    if isinstance(spec.action, Box):
        batch["action"] = rng.normal(size=(rows, spec.action.size)).astype(np.float32)
        batch["log_prob"] = -3 + rng.normal(size=rows).astype(np.float32) ** 2
        return batch
    parts = spec.action.parts
    chosen = rng.integers(0, parts, (rows, len(parts)))
    batch["action"] = chosen.reshape(rows, *spec.action.shape)
    batch["log_prob"] = np.log(rng.uniform(0.1, 0.9, rows)).astype(np.float32)
    if spec.masked:
        mask = rng.random((rows, sum(parts))) < 0.5
        for part, start in enumerate(np.cumsum((0, *parts[:-1]))):
            mask[np.arange(rows), start + chosen[:, part]] = True
        batch[f"obs.{MASK}"] = batch[f"next_obs.{MASK}"] = mask
    return batch


def make_spec(action: str, *, masked: bool = False, size: int = 6) -> Spec:
    space = ACTIONS[action]
    mask = {MASK: Box((numbers_of(space),), "bool")} if masked else {}
    return Spec({"state": Box((size,)), **mask}, space)


def learnt(ppo: PPO) -> list[Tensor]:
    """All weights, and all that the optimiser remembers of them."""
    kept = [value for name in ("exp_avg", "exp_avg_sq", "step") for value in remembered(ppo, name)]
    return [*(parameter.detach() for parameter in ppo._networks.parameters()), *kept]


def remembered(ppo: PPO, name: str) -> list[Tensor]:
    state = ppo._optimizer.state
    return [state[parameter][name] for parameter in ppo._networks.parameters() if parameter in state]


def assert_same(ours: PPO, theirs: PPO) -> None:
    for mine, other in zip(learnt(ours), learnt(theirs), strict=True):
        if mine.numel():
            assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(other.abs().max()))
    assert ours._rng.bit_generator.state == theirs._rng.bit_generator.state


def both(spec: Spec, network: dict[str, Any] | None = None, **options: Any) -> tuple[PPO, PPO]:
    ours, theirs = (make_ppo(spec, backend, network or {}, **options) for backend in ("native", "torch"))
    assert CoreUpdate.of(ours._networks, ours._optimizer) is not None
    assert CoreUpdate.of(theirs._networks, theirs._optimizer) is None
    return ours, theirs


def compare(ours: PPO, theirs: PPO, batch: Batch, updates: int = 1) -> None:
    for _ in range(updates):
        mine, other = ours.update(batch, steps=0).metrics, theirs.update(batch, steps=0).metrics
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            assert value == pytest.approx(other[name], rel=2e-4, abs=2e-5), name
    assert_same(ours, theirs)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_whole_update_of_the_core_is_that_of_torch(action: str, masked: bool) -> None:
    if masked and action == "numbers":
        pytest.skip("numbers have no mask")
    spec = make_spec(action, masked=masked)
    compare(*both(spec, entropy_coef=0.02), make_batch(spec, 150), updates=2)


@pytest.mark.parametrize(
    "options",
    [
        {"normalize_advantage": False},
        {"value_clip": 0.1},
        {"critic_lr": 1e-2},
        {"max_grad_norm": 0.01},
        {"max_grad_norm": "auto"},
        {"max_grad_norm": 1e9},
        {"gradient_steps": 7},
        {"gradient_steps": 25},
        {"target_kl": 1e-3, "lr": 1e-2},
        {"minibatch_size": 1, "epochs": 1},
        {"minibatch_size": 1000},
        {"clip_ratio": 0.01},
        {"initial_log_std": -1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("action", ["choice", "numbers"])
def test_every_option_means_the_same_to_both(action: str, options: dict[str, Any]) -> None:
    spec = make_spec(action)
    compare(*both(spec, **options), make_batch(spec, 90))


@pytest.mark.parametrize("network", [{"layer_norm": True}, {"activation": "relu"}, {"activation": "elu"}], ids=str)
def test_every_network_that_the_core_knows_learns_the_same(network: dict[str, Any]) -> None:
    spec = make_spec("choice")
    compare(*both(spec, network), make_batch(spec, 90))


@settings(max_examples=40, deadline=None)
@given(
    action=st.sampled_from(list(ACTIONS)),
    masked=st.booleans(),
    size=st.integers(1, 40),
    hidden=st.lists(st.integers(1, 70), max_size=3),
    rows=st.integers(2, 200),
    minibatch=st.integers(1, 100),
)
def test_any_shape_learns_the_same(
    action: str, masked: bool, size: int, hidden: list[int], rows: int, minibatch: int
) -> None:
    spec = make_spec(action, masked=masked and action != "numbers", size=size)
    ours, theirs = both(spec, {"hidden_dims": hidden}, minibatch_size=minibatch, entropy_coef=0.01, lr=1e-4)
    batch = make_batch(spec, rows, seed=rows)
    for ppo in (ours, theirs):
        ppo.update(batch, steps=0)
    assert_same(ours, theirs)


def test_an_update_that_is_not_finite_moves_nothing_and_says_what_is() -> None:
    spec = make_spec("choice")
    ours, _ = both(spec, minibatch_size=90)
    batch = dict(make_batch(spec, 90))
    batch["log_prob"] = np.full(90, -200.0, np.float32)
    batch["staleness"] = np.zeros(90, np.int64)
    before = [parameter.detach().clone() for parameter in ours._networks.parameters()]
    with pytest.raises(NumericalError, match="policy"):
        ours.update(batch, steps=0)
    assert all(map(torch.equal, before, ours._networks.parameters()))


def test_torch_computes_while_someone_looks_into_the_layers() -> None:
    ours, _ = both(make_spec("choice"))
    inspection = Inspection(ours, Stopwatch(iter(map(float, range(10**9))).__next__))
    with inspection.installed():
        assert CoreUpdate.of(ours._networks, ours._optimizer) is None
    assert CoreUpdate.of(ours._networks, ours._optimizer) is not None


def test_an_update_goes_on_from_what_was_saved() -> None:
    spec = make_spec("numbers")
    ours, again = (make_ppo(spec, "native", {}) for _ in range(2))
    batch = make_batch(spec, 64)
    ours.update(batch, steps=0)
    again.restore(ours.state())
    for ppo in (ours, again):
        ppo.update(batch, steps=0)
    assert all(map(torch.equal, learnt(ours), learnt(again)))


def make_a2c(spec: Spec, backend: Backend, **options: Any) -> A2C:
    config = A2CConfig.model_validate({"name": "a2c", **options})
    networks = {role: MLPConfig.model_validate(settings) for role, settings in NETWORKS.items()}
    buffer = RolloutConfig(type="trajectory", size=64)
    return A2C(Recipe(spec, config, networks, buffer, np.random.SeedSequence(3), backend=backend))


def learnt_by(a2c: A2C) -> list[Tensor]:
    """All weights, and all that the optimiser remembers of them."""
    state = a2c._optimizer.state
    kept = [state[p][name] for p in a2c._networks.parameters() if p in state for name in ("square_avg", "step")]
    return [*(parameter.detach() for parameter in a2c._networks.parameters()), *kept]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"normalize_advantage": True}, {"max_grad_norm": "auto"}], ids=str)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_update_of_a2c_is_that_of_torch(action: str, options: dict[str, Any], masked: bool) -> None:
    if masked and action == "numbers":
        pytest.skip("numbers have no mask")
    spec = make_spec(action, masked=masked)
    ours, theirs = (make_a2c(spec, backend, entropy_coef=0.02, **options) for backend in ("native", "torch"))
    assert CoreUpdate.of(ours._networks, ours._optimizer) is not None
    assert CoreUpdate.of(theirs._networks, theirs._optimizer) is None
    # What was recorded of its own version need not be what the policy says: a data set may not know.
    batch = make_batch(spec, 90)
    start = [values.clone() for values in learnt_by(ours)]
    for _ in range(4):
        mine, other = ours.update(batch, steps=0).metrics, theirs.update(batch, steps=0).metrics
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            assert value == pytest.approx(other[name], rel=2e-4, abs=2e-5), name
    for first, one, two in zip(start, learnt_by(ours), learnt_by(theirs), strict=False):
        if one.numel():
            assert float((one - two).abs().max()) <= 1e-5 * max(1.0, float(two.abs().max()))
            assert not torch.equal(first, one)


def test_a2c_says_what_is_not_finite() -> None:
    spec = make_spec("choice")
    ours = make_a2c(spec, "native")
    batch = dict(make_batch(spec, 20))
    batch["reward"] = np.full(20, np.inf, np.float32)
    with pytest.raises(NumericalError, match="the loss 'policy' is not finite"):
        ours.update(batch, steps=0)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_an_action_that_is_no_choice_is_refused(wrong: int) -> None:
    spec = make_spec("choice")
    ours, _ = both(spec)
    batch = dict(make_batch(spec, 20))
    batch["staleness"] = np.zeros(20, np.int64)
    batch["action"] = np.full(20, wrong)
    with pytest.raises(IndexError, match=f"an action is {wrong}, where there are 5 choices, from 0 on"):
        ours.update(batch, steps=0)
