"""Updates of PPO and A2C in the native core match torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl4sys.algorithms.a2c import A2C, A2CConfig
from rl4sys.algorithms.base import AlgorithmSetup, Backend
from rl4sys.algorithms.native.policy_update import CorePolicyUpdate
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.buffers.base import Batch
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.diagnostics.inspection import Inspection
from rl4sys.diagnostics.stopwatch import Stopwatch
from rl4sys.errors import NumericalError
from rl4sys.networks.mlp import MLPConfig
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import MASK, Box, Discrete, MultiDiscrete, Space, Spec, encoded_size

pytestmark = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

ACTIONS: dict[str, Space] = {
    "discrete": Discrete(5),
    "multi_discrete": MultiDiscrete((3, 1, 4)),
    "binary": MultiDiscrete((2, 2, 2)),
    "continuous": Box((3,), low=(-1.0,), high=(1.0,)),
}
NETWORKS: dict[str, Any] = {"actor": {"hidden_dims": [24, 10]}, "critic": {"hidden_dims": [17]}}


def make_ppo(spec: Spec, backend: Backend, network: dict[str, Any], **options: Any) -> PPO:
    config = PPOConfig.model_validate({"name": "ppo", "minibatch_size": 16, "epochs": 3, **options})
    networks = {role: MLPConfig.model_validate({**NETWORKS[role], **network}) for role in NETWORKS}
    buffer = RolloutConfig(type="trajectory", size=64)
    return PPO(
        AlgorithmSetup(
            spec, config, networks, buffer, np.random.SeedSequence(3), backend=backend, total_timesteps=10**6
        )
    )


def make_batch(spec: Spec, rows: int, seed: int = 0) -> Batch:
    """Return steps of several trajectories; an older policy version collected some of the steps."""
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
    mask = {MASK: Box((encoded_size(space),), "bool")} if masked else {}
    return Spec({"state": Box((size,)), **mask}, space)


def ppo_state(ppo: PPO) -> list[Tensor]:
    """Return all weights and their optimizer state."""
    kept = [value for name in ("exp_avg", "exp_avg_sq", "step") for value in optimizer_values(ppo, name)]
    return [*(parameter.detach() for parameter in ppo._networks.parameters()), *kept]


def optimizer_values(ppo: PPO, name: str) -> list[Tensor]:
    state = ppo._optimizer.state
    return [state[parameter][name] for parameter in ppo._networks.parameters() if parameter in state]


def assert_same(native: PPO, reference: PPO) -> None:
    for computed, expected in zip(ppo_state(native), ppo_state(reference), strict=True):
        if computed.numel():
            assert float((computed - expected).abs().max()) <= 1e-5 * max(1.0, float(expected.abs().max()))
    assert native._rng.bit_generator.state == reference._rng.bit_generator.state


def both(spec: Spec, network: dict[str, Any] | None = None, **options: Any) -> tuple[PPO, PPO]:
    native, reference = (make_ppo(spec, backend, network or {}, **options) for backend in ("native", "torch"))
    assert CorePolicyUpdate.of(native._networks, native._optimizer) is not None
    assert CorePolicyUpdate.of(reference._networks, reference._optimizer) is None
    return native, reference


def compare(native: PPO, reference: PPO, batch: Batch, updates: int = 1) -> None:
    for _ in range(updates):
        computed, expected = native.update(batch, steps=0).metrics, reference.update(batch, steps=0).metrics
        assert computed.keys() == expected.keys()
        for name, value in computed.items():
            assert value == pytest.approx(expected[name], rel=2e-4, abs=2e-5), name
    assert_same(native, reference)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_core_update_matches_torch(action: str, masked: bool) -> None:
    if masked and action == "continuous":
        pytest.skip("continuous actions have no mask")
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
        {"gradient_steps": 3, "critic_gradient_steps": 14},
        {"gradient_steps": 14, "critic_gradient_steps": 3, "max_grad_norm": "auto"},
        {"epochs": 1, "critic_gradient_steps": 9, "critic_lr": 1e-2},
        {"gradient_steps": 9, "critic_gradient_steps": 14, "target_kl": 1e-3, "lr": 1e-2},
        {"gradient_steps": 14, "critic_gradient_steps": 3, "target_kl": 1e-3, "lr": 1e-3},
        {"target_kl": 1e-3, "lr": 1e-2},
        {"minibatch_size": 1, "epochs": 1},
        {"minibatch_size": 1000},
        {"clip_ratio": 0.01},
        {"initial_log_std": -1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_core_update_matches_torch_with_every_option(action: str, options: dict[str, Any]) -> None:
    spec = make_spec(action)
    compare(*both(spec, **options), make_batch(spec, 90))


@pytest.mark.parametrize("network", [{"layer_norm": True}, {"activation": "relu"}, {"activation": "elu"}], ids=str)
def test_core_update_matches_torch_with_every_supported_network(network: dict[str, Any]) -> None:
    spec = make_spec("discrete")
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
def test_core_update_matches_torch_for_any_shape(
    action: str, masked: bool, size: int, hidden: list[int], rows: int, minibatch: int
) -> None:
    spec = make_spec(action, masked=masked and action != "continuous", size=size)
    native, reference = both(spec, {"hidden_dims": hidden}, minibatch_size=minibatch, entropy_coef=0.01, lr=1e-4)
    batch = make_batch(spec, rows, seed=rows)
    for ppo in (native, reference):
        ppo.update(batch, steps=0)
    assert_same(native, reference)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_explicit_equal_step_counts_give_bit_identical_updates(action: str, backend: Backend) -> None:
    spec = make_spec(action)
    options = {"gradient_steps": 7, "target_kl": 0.05}
    one = make_ppo(spec, backend, {}, **options)
    two = make_ppo(spec, backend, {}, **options, critic_gradient_steps=7)
    batch = make_batch(spec, 90)
    for _ in range(3):
        assert one.update(batch, steps=0) == two.update(batch, steps=0)
    assert all(map(torch.equal, ppo_state(one), ppo_state(two)))
    assert one._rng.bit_generator.state == two._rng.bit_generator.state


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_actor_and_critic_take_the_configured_numbers_of_steps(backend: Backend) -> None:
    spec = make_spec("continuous")
    few = make_ppo(spec, backend, {}, gradient_steps=2)
    more = make_ppo(spec, backend, {}, gradient_steps=2, critic_gradient_steps=8)
    batch = make_batch(spec, 90)
    few.update(batch, steps=0)
    more.update(batch, steps=0)
    taken = {parameter: int(state["step"]) for parameter, state in more._optimizer.state.items()}
    for parameter, same in zip(more._networks.actor_parameters(), few._networks.actor_parameters(), strict=True):
        assert taken[parameter] == 2
        assert torch.equal(parameter, same)
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(more._optimizer.state[parameter][name], few._optimizer.state[same][name])
    for parameter, other in zip(more._networks.critic_parameters(), few._networks.critic_parameters(), strict=True):
        assert taken[parameter] == 8
        assert not torch.equal(parameter, other)


def test_critic_takes_all_its_steps_after_early_stop_of_the_actor() -> None:
    spec = make_spec("discrete")
    ppo = make_ppo(spec, "native", {}, gradient_steps=5, critic_gradient_steps=9, target_kl=1e-9, lr=1e-2)
    ppo.update(make_batch(spec, 90), steps=0)
    state = ppo._optimizer.state
    assert {int(state[parameter]["step"]) for parameter in ppo._networks.actor.parameters()} == {1}
    assert {int(state[parameter]["step"]) for parameter in ppo._networks.critic_parameters()} == {9}


def test_restored_ppo_with_unequal_step_counts_continues_identically() -> None:
    spec = make_spec("continuous")
    options = {"gradient_steps": 2, "critic_gradient_steps": 5}
    ppo, again = (make_ppo(spec, "native", {}, **options) for _ in range(2))
    batch = make_batch(spec, 64)
    ppo.update(batch, steps=0)
    again.restore(ppo.state())
    for one in (ppo, again):
        one.update(batch, steps=0)
    assert all(map(torch.equal, ppo_state(ppo), ppo_state(again)))


def test_non_finite_update_raises_an_error_and_keeps_the_weights() -> None:
    spec = make_spec("discrete")
    native, _ = both(spec, minibatch_size=90)
    batch = dict(make_batch(spec, 90))
    batch["log_prob"] = np.full(90, -200.0, np.float32)
    batch["staleness"] = np.zeros(90, np.int64)
    before = [parameter.detach().clone() for parameter in native._networks.parameters()]
    with pytest.raises(NumericalError, match="policy"):
        native.update(batch, steps=0)
    assert all(map(torch.equal, before, native._networks.parameters()))


def test_updates_run_in_torch_while_hooks_are_registered() -> None:
    native, _ = both(make_spec("discrete"))
    inspection = Inspection(native, Stopwatch(iter(map(float, range(10**9))).__next__))
    with inspection.installed():
        assert CorePolicyUpdate.of(native._networks, native._optimizer) is None
    assert CorePolicyUpdate.of(native._networks, native._optimizer) is not None


def test_restored_ppo_continues_identically() -> None:
    spec = make_spec("continuous")
    native, again = (make_ppo(spec, "native", {}) for _ in range(2))
    batch = make_batch(spec, 64)
    native.update(batch, steps=0)
    again.restore(native.state())
    for ppo in (native, again):
        ppo.update(batch, steps=0)
    assert all(map(torch.equal, ppo_state(native), ppo_state(again)))


def make_a2c(spec: Spec, backend: Backend, **options: Any) -> A2C:
    config = A2CConfig.model_validate({"name": "a2c", **options})
    networks = {role: MLPConfig.model_validate(settings) for role, settings in NETWORKS.items()}
    buffer = RolloutConfig(type="trajectory", size=64)
    return A2C(AlgorithmSetup(spec, config, networks, buffer, np.random.SeedSequence(3), backend=backend))


def a2c_state(a2c: A2C) -> list[Tensor]:
    """Return all weights and their optimizer state."""
    state = a2c._optimizer.state
    kept = [state[p][name] for p in a2c._networks.parameters() if p in state for name in ("square_avg", "step")]
    return [*(parameter.detach() for parameter in a2c._networks.parameters()), *kept]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"normalize_advantage": True}, {"max_grad_norm": "auto"}], ids=str)
@pytest.mark.parametrize("action", ACTIONS)
def test_a2c_update_matches_torch(action: str, options: dict[str, Any], masked: bool) -> None:
    if masked and action == "continuous":
        pytest.skip("continuous actions have no mask")
    spec = make_spec(action, masked=masked)
    native, reference = (make_a2c(spec, backend, entropy_coef=0.02, **options) for backend in ("native", "torch"))
    assert CorePolicyUpdate.of(native._networks, native._optimizer) is not None
    assert CorePolicyUpdate.of(reference._networks, reference._optimizer) is None
    # The recorded log-probabilities differ from those of the policy, as they may in a dataset.
    batch = make_batch(spec, 90)
    start = [values.clone() for values in a2c_state(native)]
    for _ in range(4):
        computed, expected = native.update(batch, steps=0).metrics, reference.update(batch, steps=0).metrics
        assert computed.keys() == expected.keys()
        for name, value in computed.items():
            assert value == pytest.approx(expected[name], rel=2e-4, abs=2e-5), name
    for first, one, two in zip(start, a2c_state(native), a2c_state(reference), strict=False):
        if one.numel():
            assert float((one - two).abs().max()) <= 1e-5 * max(1.0, float(two.abs().max()))
            assert not torch.equal(first, one)


def test_a2c_reports_non_finite_loss() -> None:
    spec = make_spec("discrete")
    native = make_a2c(spec, "native")
    batch = dict(make_batch(spec, 20))
    batch["reward"] = np.full(20, np.inf, np.float32)
    with pytest.raises(NumericalError, match="the loss 'policy' is not finite"):
        native.update(batch, steps=0)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_action_out_of_range_is_rejected(wrong: int) -> None:
    spec = make_spec("discrete")
    native, _ = both(spec)
    batch = dict(make_batch(spec, 20))
    batch["staleness"] = np.zeros(20, np.int64)
    batch["action"] = np.full(20, wrong)
    with pytest.raises(IndexError, match=f"action {wrong} is out of range; expected 0 to 4"):
        native.update(batch, steps=0)
