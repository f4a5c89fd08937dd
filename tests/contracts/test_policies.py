"""Contract of `policy.base.Policy`, checked for every form of a policy.

Each case is one network and head. It runs as the live torch policy and as its snapshot, in the native core and in
numpy. Most tests include the greedy form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from rl4sys.algorithms.actions import ActionKind, supported_actions
from rl4sys.errors import ExportError, SpecError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.networks.base import Blueprint, build_network
from rl4sys.networks.noisy import resample_noise
from rl4sys.networks.sampler import NOISE, Sampler, SamplingPolicy
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.normalization import NormalizedPolicy, ObservationNormalizer
from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot_policy import SnapshotPolicy, load_policy
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import MASK, Array, Box, Columns, Discrete, MultiDiscrete, Space, Spec, is_allowed, mask_box
from rl4sys.testing.policies import (
    batched_decisions_equal_single_decisions,
    decisions_depend_on_the_draws_alone,
    decisions_fit_the_spec,
    greedy_policy_ignores_the_draws,
    illegal_actions_are_never_taken,
    snapshot_acts_like_the_policy,
)
from rl4sys.trajectory import MEMORY, Trajectory

from ..networks.test_forms_agree import config_of, observations, perturbed

STATE = {"state": Box((5,)), "clock": Box((1,))}
DISCRETE = Spec({**STATE, MASK: mask_box(Discrete(4))}, Discrete(4))
MULTI_DISCRETE = Spec({**STATE, MASK: mask_box(MultiDiscrete((3, 2)))}, MultiDiscrete((3, 2)))
BOUNDED = Spec(STATE, Box((2,), low=(-1.0, 0.0), high=(1.0, 3.0)))
UNBOUNDED = Spec(STATE, Box((2,)))

MLP = {"type": "mlp", "hidden_dims": [8]}
BOUNDS = {"low": np.array([-1, 0], np.float32), "high": np.array([1, 3], np.float32)}
LOG_STD = {"log_std": np.array([-0.5, 0.3], np.float32)}
PARTS = {"choices": np.array([3, 2], np.float32)}
SQUASHED = Operation("squashed_gaussian", ("low", "high"), {"log_std_min": -20.0, "log_std_max": 2.0})


@dataclass(frozen=True)
class Case:
    """Test case: spec, head and network of one policy."""

    spec: Spec
    head: Operation
    outputs: int
    weights: Columns = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=lambda: MLP)
    make: Callable[[Case], Policy] = field(default_factory=lambda: live_policy)
    random: bool = True
    """False if the policy is deterministic even in its non-greedy form."""
    has_density: bool = True
    """False if the log-probability is 0 by definition although actions are random."""


def build(case: Case, spec: Spec) -> nn.Module:
    return perturbed(build_network(config_of(case.network), Blueprint(spec, case.outputs, allow_memory=True), seed=1))


def live_policy(case: Case) -> Policy:
    return TorchPolicy(case.spec, build(case, case.spec), case.head, case.weights)


def noisy_policy(case: Case) -> Policy:
    network = build(case, case.spec)
    resample_noise(network, np.random.default_rng(3))
    return TorchPolicy(case.spec, network, case.head, case.weights)


def sampling_policy(case: Case) -> Policy:
    network = build(case, Spec({**case.spec.observation, NOISE: Box((2,))}, case.spec.action))
    return SamplingPolicy(case.spec, Sampler(network, 2), case.head, case.weights)


def normalized_policy(case: Case) -> Policy:
    normalizer = ObservationNormalizer(case.spec)
    columns = {f"obs.{name}": 3 + 2 * column for name, column in observations(Spec(STATE, BOUNDED.action), 41).items()}
    columns |= {name: np.zeros(40, np.float32) for name in ("reward", "log_prob")}
    columns["action"] = np.zeros((40, *case.spec.action.shape), case.spec.action.dtype)
    normalizer.update(Trajectory(0, columns, terminated=True))
    normalizer.activate()
    inner = TorchPolicy(normalizer.spec, build(case, normalizer.spec), case.head, case.weights)
    return NormalizedPolicy(inner, normalizer)


CASES = {
    "categorical": Case(DISCRETE, Operation("categorical"), 4),
    "argmax": Case(DISCRETE, Operation("argmax"), 4, random=False),
    "epsilon greedy": Case(DISCRETE, Operation("epsilon_greedy", options={"epsilon": 0.4}), 4),
    "noisy network": Case(DISCRETE, Operation("categorical"), 4, network={**MLP, "noisy": True}, make=noisy_policy),
    "recurrent": Case(
        DISCRETE, Operation("categorical"), 4, network={"type": "gru", "hidden_dims": [6], "hidden_size": 5}
    ),
    "multi-categorical": Case(MULTI_DISCRETE, Operation("multi_categorical", ("choices",)), 5, PARTS),
    "multi-argmax": Case(MULTI_DISCRETE, Operation("multi_argmax", ("choices",)), 5, PARTS, random=False),
    "gaussian": Case(UNBOUNDED, Operation("gaussian", ("log_std",)), 2, LOG_STD),
    "recurrent gaussian": Case(
        UNBOUNDED,
        Operation("gaussian", ("log_std",)),
        2,
        LOG_STD,
        network={"type": "lstm", "hidden_dims": [], "hidden_size": 4},
    ),
    "squashed gaussian": Case(BOUNDED, SQUASHED, 4, BOUNDS),
    "normalized": Case(BOUNDED, SQUASHED, 4, BOUNDS, make=normalized_policy),
    "noisy squash": Case(
        BOUNDED, Operation("noisy_squash", ("low", "high"), {"sigma": 0.3}), 2, BOUNDS, has_density=False
    ),
    "squash": Case(BOUNDED, Operation("squash", ("low", "high")), 2, BOUNDS, random=False),
    "uniform": Case(BOUNDED, Operation("uniform", ("low", "high"), {"parameters": 1}), 2, BOUNDS),
    "sampler": Case(BOUNDED, Operation("squash", ("low", "high")), 2, BOUNDS, make=sampling_policy, has_density=False),
}
MASKED = [name for name, case in CASES.items() if case.spec.masked]
RECURRENT = ["recurrent", "recurrent gaussian"]
WITH_DENSITY = [name for name, case in CASES.items() if case.random and case.has_density]
FORMS = ("torch", "native", "numpy")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(params=FORMS)
def policy(request: pytest.FixtureRequest, case: Case, monkeypatch: pytest.MonkeyPatch) -> Policy:
    live = case.make(case)
    if request.param == "torch":
        return live
    if request.param == "native" and not NATIVE:
        pytest.skip("the native core is not installed, or RL4SYS_NUMPY=1")
    monkeypatch.setattr("rl4sys.policy.snapshot_policy.NATIVE", request.param == "native")
    return SnapshotPolicy(live.snapshot(0))


def is_live(policy: Policy) -> bool:
    return not isinstance(policy, SnapshotPolicy)


def is_legal(case: Case, action: Array) -> bool:
    return all(np.array_equal(row, case.spec.action.legal(row)) for row in action)


def repeated(spec: Spec, rows: int) -> dict[str, Array]:
    """Repeat one observation; with a mask, more than one action is legal."""
    columns = {name: np.repeat(column[1:2], rows, axis=0) for name, column in observations(spec, 2).items()}
    if spec.masked:
        columns[MASK][:] = True
        columns[MASK][:, 0] = False
    return columns


def assert_same(one: Decision, other: Decision, *, exact: bool) -> None:
    pairs = [(one.action, other.action), (one.log_prob, other.log_prob)]
    assert one.memory.keys() == other.memory.keys()
    pairs += [(one.memory[name], other.memory[name]) for name in one.memory]
    for a, b in pairs:
        np.testing.assert_allclose(b, a, rtol=0, atol=0 if exact else 1e-5)


def test_decision_has_the_shapes_and_types_of_the_spec(policy: Policy, case: Case) -> None:
    seen = observations(case.spec, 7)
    decisions_fit_the_spec(policy, seen)
    assert all(is_legal(case, acting.act(seen, {}, Draws(1)).action) for acting in (policy, policy.greedy()))


def test_decision_depends_on_the_draws_alone(policy: Policy, case: Case) -> None:
    seen = observations(case.spec, 50)
    decisions_depend_on_the_draws_alone(policy, seen)
    first, other = (policy.act(seen, {}, Draws(seed)).action for seed in (5, 6))
    assert np.array_equal(first, other) == (not case.random)


def test_batched_decisions_equal_decisions_of_single_rows(policy: Policy, case: Case) -> None:
    # Rounding of matrix products in torch depends on the number of rows.
    batched_decisions_equal_single_decisions(policy, observations(case.spec, 20), exact=not is_live(policy))


def test_greedy_policy_ignores_the_draws(policy: Policy, case: Case) -> None:
    greedy_policy_ignores_the_draws(policy, observations(case.spec, 50))


@pytest.mark.parametrize("case", [CASES[name] for name in MASKED], ids=MASKED)
def test_illegal_actions_are_never_taken(policy: Policy, case: Case) -> None:
    illegal_actions_are_never_taken(policy, observations(case.spec, 3000))


@pytest.mark.parametrize("case", [CASES[name] for name in RECURRENT], ids=RECURRENT)
def test_recurrent_state_affects_the_next_decision(policy: Policy, case: Case) -> None:
    seen = observations(case.spec, 9)
    first = policy.act(seen, {}, Draws(1))
    held = first.memory[MEMORY].copy()
    second = policy.act(seen, first.memory, Draws(1))
    assert np.array_equal(first.memory[MEMORY], held), "the given memory should not be changed"
    assert not np.array_equal(second.memory[MEMORY], held)
    assert not (np.array_equal(second.action, first.action) and np.array_equal(second.log_prob, first.log_prob))
    restarted = {MEMORY: np.zeros_like(held)}
    assert_same(first, policy.act(seen, restarted, Draws(1)), exact=True)


def test_only_recurrent_policies_return_a_recurrent_state(policy: Policy, case: Case) -> None:
    memory = policy.act(observations(case.spec, 3), {}, Draws(1)).memory
    assert (MEMORY in memory) == (case.network["type"] != "mlp")


def test_nan_observation_gives_nan_log_probability_and_keeps_the_recurrent_state(policy: Policy, case: Case) -> None:
    seen = observations(case.spec, 4)
    before = policy.act(seen, {}, Draws(1)).memory
    seen["state"] = seen["state"].copy()
    seen["state"][2, 1] = np.nan
    decision = policy.act(seen, before, Draws(2))
    assert np.isnan(decision.log_prob).tolist() == [False, False, True, False]
    if case.spec.masked:
        assert is_allowed(case.spec.action, decision.action, seen[MASK])
    for name, memory in decision.memory.items():
        kept = [np.array_equal(memory[row], before[name][row]) for row in range(4)]
        assert kept == [False, False, True, False]


@pytest.mark.parametrize("case", [CASES[name] for name in WITH_DENSITY], ids=WITH_DENSITY)
def test_log_probability_matches_action_frequencies(policy: Policy, case: Case) -> None:
    rows = 20_000
    action, log_prob, _ = policy.act(repeated(case.spec, rows), {}, Draws(7))
    if isinstance(case.spec.action, Box):
        inside, volume = region(policy, case, action)
        # The mean of 1 / density over the samples in a region estimates its volume.
        assert (inside * np.exp(-log_prob.astype(float))).mean() == pytest.approx(volume, rel=0.1)
        assert 0.02 < inside.mean() < 1
        return
    taken, counts = np.unique(action.reshape(rows, -1), axis=0, return_counts=True)
    assert len(taken) > 1
    for one, count in zip(taken, counts, strict=True):
        probability = np.exp(log_prob[(action.reshape(rows, -1) == one).all(1)].astype(float))
        assert np.ptp(probability) < 1e-6
        assert count / rows == pytest.approx(probability[0], abs=4 * np.sqrt(0.25 / rows))


def region(policy: Policy, case: Case, action: Array) -> tuple[Array, float]:
    """Return a mask of the actions within a region, and its volume. Bounded actions are scaled to -1..1 first."""
    assert isinstance(case.spec.action, Box)
    if not np.isfinite(case.spec.action.bounds()).all():
        mean = policy.greedy().act(repeated(case.spec, 1), {}, Draws(0)).action
        return (np.abs(action - mean) < 1).all(1), 4.0
    unit = 2 * (action - BOUNDS["low"]) / (BOUNDS["high"] - BOUNDS["low"]) - 1
    return (np.abs(unit) < 0.9).all(1), 1.8**2


def test_log_probability_is_zero_without_a_density(policy: Policy, case: Case) -> None:
    if not case.random or not case.has_density:
        assert not policy.act(observations(case.spec, 20), {}, Draws(1)).log_prob.any()


def test_snapshot_acts_like_the_policy(policy: Policy, case: Case) -> None:
    snapshot_acts_like_the_policy(policy, observations(case.spec, 50), exact=not is_live(policy))


def test_policy_loaded_from_file_acts_like_the_snapshot(policy: Policy, case: Case, tmp_path: Path) -> None:
    seen = observations(case.spec, 50)
    for acting in (policy, policy.greedy()):
        snapshot = acting.snapshot(7)
        (tmp_path / "policy.safetensors").write_bytes(snapshot.to_bytes())
        loaded = load_policy(tmp_path / "policy.safetensors")
        assert (loaded.version, loaded.spec) == (7, case.spec)
        assert_same(SnapshotPolicy(snapshot).act(seen, {}, Draws(3)), loaded.act(seen, {}, Draws(3)), exact=True)


@pytest.mark.parametrize("width", [1, 4, 6])
def test_observation_of_wrong_shape_is_rejected(policy: Policy, case: Case, width: int) -> None:
    seen = observations(case.spec, 3)
    seen["state"] = np.zeros((3, width), np.float32)
    for acting in (policy, policy.greedy()):
        with pytest.raises(SpecError, match=r"\(3, \d\).*; expected .*\(N, [56]\)"):
            acting.act(seen, {}, Draws(1))


SPECS = {
    ActionKind.DISCRETE: DISCRETE,
    ActionKind.MULTI_DISCRETE: MULTI_DISCRETE,
    ActionKind.BOUNDED: BOUNDED,
    ActionKind.UNBOUNDED: UNBOUNDED,
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in ALGORITHMS.names() for kind in SPECS if kind in supported_actions(name)]
)
def test_cases_include_the_head_of_every_algorithm(name: str, kind: ActionKind) -> None:
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name}),
        networks=parse_networks({}, name),
        buffer=parse_buffer({"size": 8}, name),
        total_timesteps=1000,
    )
    algorithm, spec = build_learner(SPECS[kind], config, seed=1).algorithm, SPECS[kind]
    for steps in (0, 10**6):
        policy = algorithm.policy(steps)
        assert type(policy) in (TorchPolicy, SamplingPolicy)
        assert policy.head.name in {case.head.name for case in CASES.values()}
        assert policy.act(observations(spec, 2), {}, Draws(1)).action.shape == (2, *spec.action.shape)


def test_snapshot_of_unexportable_network_raises_export_error() -> None:
    class Opaque(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, observation: dict[str, Tensor]) -> Tensor:
            outputs: Tensor = self.layer(observation["state"])
            return outputs

    space: Space = Discrete(3)
    policy = TorchPolicy(Spec({"state": Box((5,))}, space), Opaque(), Operation("categorical"))
    assert policy.act({"state": np.zeros((2, 5), np.float32)}, {}, Draws(1)).action.shape == (2,)
    with pytest.raises(ExportError, match="no export\\(prefix\\) method"):
        policy.snapshot(0)
