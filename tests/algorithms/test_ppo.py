"""PPO: formulas against hand-computed values, and updates on small batches."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl4sys.algorithms.actor_critic import importance
from rl4sys.algorithms.base import AlgorithmSetup, Backend
from rl4sys.algorithms.distributions import categorical_terms, gaussian_terms
from rl4sys.algorithms.optimization import descend, make_adam
from rl4sys.algorithms.ppo import (
    PPO,
    PPOConfig,
    clipped_policy_loss,
    kl_estimate,
    value_loss,
)
from rl4sys.buffers.base import Batch, transitions
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.config import parse
from rl4sys.errors import ConfigError
from rl4sys.networks.state import module_state, optimizer_state
from rl4sys.runs.state_tree import split_state
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory


def prepare(ppo: PPO, batch: Batch) -> dict[str, Tensor]:
    """Return the tensors of an update: the batch with advantages, returns and importance weights."""
    return ppo._networks.with_advantages(batch, ppo._options.gamma, ppo._options.gae_lambda)


def t(*values: float) -> Tensor:
    return torch.tensor(values)


def test_surrogate_loss_is_clipped() -> None:
    old = t(0.0, 0.0, 0.0, 0.0)
    log_prob = torch.log(t(1.5, 0.5, 1.5, 0.5))
    advantage = t(1.0, 1.0, -1.0, -1.0)
    # min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5; min(-1.5, -1.2) = -1.5; min(-0.5, -0.8) = -0.8
    assert clipped_policy_loss(log_prob, old, advantage, 0.2).item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_clipped_ratio_has_no_gradient() -> None:
    log_prob = torch.log(t(1.5, 1.1)).requires_grad_()
    clipped_policy_loss(log_prob, t(0.0, 0.0), t(1.0, 1.0), 0.2).backward()
    assert log_prob.grad is not None
    assert log_prob.grad[0] == 0
    assert log_prob.grad[1] == pytest.approx(-1.1 / 2)


def test_value_loss_is_half_the_squared_error() -> None:
    assert value_loss(t(1.0, 3.0), t(0.0, 0.0), t(2.0, 0.0), None).item() == pytest.approx(0.5 * (1 + 9) / 2)


def test_clipped_value_loss_uses_the_larger_error() -> None:
    # Moved from 0 to 3, allowed 0.5: errors to the target 2 are 1 and (0.5 - 2)^2 = 2.25.
    assert value_loss(t(3.0), t(0.0), t(2.0), 0.5).item() == pytest.approx(0.5 * 2.25)


def test_kl_estimate_is_zero_only_for_equal_policies() -> None:
    assert kl_estimate(t(-1.0, -2.0), t(-1.0, -2.0)).item() == 0
    ratio = 0.5
    assert kl_estimate(torch.log(t(ratio)), t(0.0)).item() == pytest.approx(ratio - 1 - math.log(ratio))


def test_categorical_log_prob_and_entropy_use_legal_actions_only() -> None:
    logits, mask = torch.log(t(1.0, 2.0, 5.0)).repeat(2, 1), torch.tensor([[True, True, True], [True, True, False]])
    log_prob, entropy = categorical_terms(logits, torch.tensor([2, 1]), mask)
    assert log_prob.exp().tolist() == pytest.approx([5 / 8, 2 / 3])
    by_hand = [-sum(p * math.log(p) for p in row) for row in ([1 / 8, 2 / 8, 5 / 8], [1 / 3, 2 / 3])]
    assert entropy.tolist() == pytest.approx(by_hand)


def test_illegal_action_gets_no_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    log_prob, entropy = categorical_terms(logits, torch.tensor([0]), torch.tensor([[True, True, False]]))
    (log_prob + entropy).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


def test_gaussian_log_prob_and_entropy_match_torch() -> None:
    rng = np.random.default_rng(0)
    mean, action = (torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32)) for _ in range(2))
    log_std = t(-0.5, 0.0, 0.7)
    normal = torch.distributions.Normal(mean, log_std.exp())
    log_prob, entropy = gaussian_terms(mean, log_std, action)
    torch.testing.assert_close(log_prob, normal.log_prob(action).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))


SPEC = Spec({"state": Box((2,))}, Discrete(2))


def make_ppo(backend: Backend = "auto", **options: object) -> PPO:
    config = PPOConfig.model_validate({"name": "ppo", "gamma": 0.5, "gae_lambda": 1.0, "minibatch_size": 8, **options})
    buffer = RolloutConfig(type="trajectory", size=6)
    return PPO(
        AlgorithmSetup(SPEC, config, {}, buffer, np.random.SeedSequence(1), backend=backend, total_timesteps=100)
    )


def rollout(end: str) -> dict[str, np.ndarray]:
    """Return three steps with reward 1 each; ``end`` is the kind of trajectory end."""
    states = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    columns = {"obs.state": states, "action": np.array([0, 1, 1]), "reward": np.ones(3, np.float32)}
    columns["log_prob"] = np.full(3, math.log(0.5), np.float32)
    return transitions(Trajectory(0, columns, terminated=end == "terminated", truncated=end == "truncated"))


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut"])
def test_final_value_is_bootstrapped_unless_the_episode_terminated(end: str) -> None:
    ppo, batch = make_ppo(), rollout(end)
    with torch.no_grad():
        final_value = float(ppo._networks.value({"state": torch.from_numpy(batch["next_obs.state"][-1:])}))
    prepared = prepare(ppo, batch)
    after = 0.0 if end == "terminated" else final_value
    assert final_value != 0, "a value of 0 would make the cases equal"
    assert prepared["return"].tolist() == pytest.approx([1.75 + after / 8, 1.5 + after / 4, 1 + after / 2], abs=1e-6)


def test_update_stops_early_at_target_kl() -> None:
    free, held = make_ppo(lr=0.1, epochs=50), make_ppo(lr=0.1, epochs=50, target_kl=1e-4)
    for ppo in (free, held):
        ppo.update(rollout("terminated"), steps=0)
    steps = [float(next(iter(optimizer_state(ppo._optimizer).values()))["step"]) for ppo in (free, held)]
    assert steps[0] == 50
    assert 1 <= steps[1] < 50


def test_optimizer_uses_the_scheduled_learning_rate() -> None:
    ppo = make_ppo(lr={"start": 0.1, "end": 0.0}, epochs=1)
    assert [ppo.update(rollout("terminated"), steps=s).metrics["policy/lr"] for s in (0, 50, 100)] == [0.1, 0.05, 0.0]


def test_surrogate_loss_is_weighted_by_importance() -> None:
    log_prob, advantage, weight = torch.log(t(1.5, 0.5)), t(1.0, 1.0), t(0.5, 0.25)
    # 0.5 * min(1.5, 1.2) and 0.25 * min(0.5, 0.8)
    loss = clipped_policy_loss(log_prob, t(0.0, 0.0), advantage, 0.2, weight)
    assert loss.item() == pytest.approx(-(0.5 * 1.2 + 0.25 * 0.5) / 2)


def test_importance_weight_is_at_most_1() -> None:
    weight = importance(torch.log(t(0.1, 0.3, 0.9)), torch.log(t(0.8, 0.3, 0.2)))
    assert weight.tolist() == pytest.approx([0.125, 1, 1])
    assert importance(t(0.0), t(-1e4)).item() == 1, "a tiny recorded probability should not overflow"


def bandit(staleness: int) -> dict[str, np.ndarray]:
    """Return ten steps of a two-armed bandit; arm 1 has reward 1 and was chosen with probability 0.2."""
    action = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    ends = np.ones(10, bool)
    return {
        "obs.state": np.zeros((10, 2), np.float32),
        "next_obs.state": np.zeros((10, 2), np.float32),
        "action": action,
        "reward": action.astype(np.float32),
        "log_prob": np.log(np.where(action == 1, 0.2, 0.8)).astype(np.float32),
        "terminated": ends,
        "ended": ends,
        "last": ends,
        "staleness": np.full(10, staleness, np.int64),
    }


def make_biased_ppo(**options: Any) -> PPO:
    """Return a PPO whose policy chooses arm 1 with probability 0.9 and whose critic returns 0."""
    ppo = make_ppo(minibatch_size=10, max_grad_norm=1e9, normalize_advantage=False, **options)
    with torch.no_grad():
        # For zero inputs the outputs are the biases of the last layer.
        list(ppo._networks.actor.parameters())[-1].copy_(t(0.0, math.log(9)))
    return ppo


def arm_1_probability(ppo: PPO) -> float:
    with torch.no_grad():
        return float(ppo._networks.actor({"state": torch.zeros(1, 2)}).softmax(-1)[0, 1])


def critic_value(ppo: PPO) -> float:
    with torch.no_grad():
        return float(ppo._networks.value({"state": torch.zeros(1, 2)}))


def test_learns_rewarded_action_from_stale_steps() -> None:
    corrected, uncorrected = make_biased_ppo(lr=1e-3, epochs=5), make_biased_ppo(lr=1e-3, epochs=5)
    assert arm_1_probability(corrected) == pytest.approx(0.9)
    metrics = [ppo.update(bandit(staleness=s), steps=0).metrics for ppo, s in ((corrected, 2), (uncorrected, 0))]
    assert arm_1_probability(corrected) > 0.9 + 1e-4
    # The ratio 0.9 / 0.2 is outside the clip range, so the gradient is 0.
    assert arm_1_probability(uncorrected) == pytest.approx(0.9, abs=1e-6)
    # Importance weights: 1 for arm 1, 0.1 / 0.8 for arm 0.
    assert [m["policy/importance"] for m in metrics] == pytest.approx([(2 + 8 * 0.125) / 10, 1])
    assert [m["policy/staleness"] for m in metrics] == [2, 0]


def test_gradient_of_stale_steps_is_scaled_by_importance_weight() -> None:
    # All rewards are equal, and arm 0 was chosen far more often than the current policy would.
    batch = {**bandit(staleness=1), "reward": np.ones(10, np.float32)}
    ppo = make_biased_ppo(backend="torch", epochs=1)
    metrics = ppo.update(batch, steps=0).metrics
    assert metrics["loss/policy"] == pytest.approx(-(2 * 1 + 8 * 0.125) / 10)
    # The gradient of each step is its weight times 1 - pi of its arm; without weights arm 0 would have 8 * 0.9.
    arm_0 = (8 * 0.125 * 0.9 - 2 * 0.1) / 10
    gradient = list(ppo._networks.actor.parameters())[-1].grad
    assert gradient is not None
    assert gradient.tolist() == pytest.approx([-arm_0, arm_0])


def test_critic_learns_values_of_the_current_policy_from_stale_steps() -> None:
    corrected, uncorrected = (make_biased_ppo(lr=0.0, critic_lr=0.02, epochs=1) for _ in range(2))
    for _ in range(300):
        corrected.update(bandit(staleness=1), steps=0)
        uncorrected.update(bandit(staleness=0), steps=0)
    # V-trace fixed point: 2 steps with weight 1 and reward 1, 8 steps with weight 0.125 and reward 0.
    assert critic_value(corrected) == pytest.approx(2 / (2 + 8 * 0.125), abs=0.01)
    assert critic_value(uncorrected) == pytest.approx(0.2, abs=0.01)


def test_advantages_of_stale_steps_are_weighted_by_importance() -> None:
    ppo, batch = make_biased_ppo(), bandit(staleness=1)
    batch["last"] = batch["terminated"] = batch["ended"] = np.arange(10) == 9
    prepared = prepare(ppo, batch)
    # Values are 0, gamma is 0.5 and lambda 1; the second step has weight 1, so its full reward reaches the first.
    assert prepared["advantage"][:2].tolist() == pytest.approx([1.5, 1], abs=1e-6)
    batch["reward"] = np.eye(10, dtype=np.float32)[9]
    # A reward is propagated back through the weights of its own step and of all steps after the earlier one.
    expected = [0.5**k * 0.125**k for k in range(4)]
    assert prepare(ppo, batch)["advantage"].flip(0)[:4].tolist() == pytest.approx(expected, abs=1e-6)


def contents(ppo: PPO) -> tuple[str, dict[str, bytes]]:
    document, arrays = split_state(ppo.state())
    return json.dumps(document), {name: array.tobytes() for name, array in arrays.items()}


def test_staleness_of_0_does_not_change_the_update() -> None:
    fresh, plain, stale = (make_ppo(epochs=3, minibatch_size=2, lr=1e-2) for _ in range(3))
    batch = rollout("truncated")
    fresh.update({**batch, "staleness": np.zeros(3, np.int64)}, steps=0)
    plain.update(batch, steps=0)
    stale.update({**batch, "staleness": np.array([1, 0, 0])}, steps=0)
    assert contents(fresh) == contents(plain)
    assert contents(stale) != contents(plain)


def test_on_policy_steps_have_weight_1_and_recorded_log_probability() -> None:
    batch = {**bandit(staleness=0), "staleness": np.arange(10) % 2}
    prepared = prepare(make_biased_ppo(), batch)
    assert (prepared["weight"][::2] == 1).all()
    assert prepared["log_prob"][::2].tolist() == batch["log_prob"][::2].tolist()
    assert (prepared["weight"][3::2] < 0.2).all()


def test_critic_can_have_its_own_learning_rate() -> None:
    shared, equal, frozen = (
        make_ppo(lr=1e-2, epochs=3, **own) for own in ({}, {"critic_lr": 1e-2}, {"critic_lr": 0.0})
    )
    first = module_state(shared._networks)
    norms = [p.update(rollout("truncated"), steps=0).metrics["loss/gradient_norm"] for p in (shared, equal, frozen)]
    assert contents(equal) == contents(shared), "an equal rate should change nothing"
    assert norms[0] == norms[1], "the norm should cover all parameters"
    for name, weights in module_state(frozen._networks).items():
        assert np.array_equal(weights, first[name]) == (name.startswith("critic") or not weights.size), name


def test_gradients_of_all_parameter_groups_are_clipped_by_one_norm() -> None:
    one, two = torch.nn.Parameter(t(0.0)), torch.nn.Parameter(t(0.0))
    optimizer = make_adam([[one], [two]], lr=0.1, eps=1e-8)
    module = torch.nn.ParameterList([one, two])
    assert descend(optimizer, module, {"loss": (3 * one + 4 * two).sum()}, max_grad_norm=1.0, steps=0) == 5
    seen = [optimizer.state[parameter]["exp_avg"].item() for parameter in (one, two)]
    assert seen == pytest.approx([0.1 * 0.6, 0.1 * 0.8]), "the first mean should be a tenth of the first gradient"


def optimizer_steps(ppo: PPO) -> float:
    return float(next(iter(optimizer_state(ppo._optimizer).values()))["step"])


def test_gradient_steps_option_overrides_epochs() -> None:
    # Three rows in minibatches of two: two minibatches per pass.
    passes, same, fewer = (
        make_ppo(minibatch_size=2, **length) for length in ({"epochs": 2}, {"gradient_steps": 4}, {"gradient_steps": 3})
    )
    for ppo in (passes, same, fewer):
        ppo.update(rollout("truncated"), steps=0)
    assert [optimizer_steps(ppo) for ppo in (passes, same, fewer)] == [4, 4, 3]
    assert contents(same) == contents(passes)


def test_schedule_without_length_is_rejected_at_construction() -> None:
    config = PPOConfig.model_validate({"name": "ppo", "critic_lr": {"start": 1e-3}})
    with pytest.raises(ConfigError, match=r"algorithm\.critic_lr goes from 0\.001 to 0\.0 over a fraction of training"):
        PPO(AlgorithmSetup(SPEC, config, {}, RolloutConfig(type="trajectory", size=6), np.random.SeedSequence(1)))


@pytest.mark.parametrize("setting", [{"minibatch_size": 10**9}, {"epochs": 10**6}, {"gradient_steps": 10**9}])
def test_option_above_its_maximum_is_rejected(setting: dict[str, int]) -> None:
    ((name, _),) = setting.items()
    with pytest.raises(ConfigError, match=rf"algorithm\.{name} is \d+; expected a value less than or equal to \d+"):
        parse(PPOConfig, {"name": "ppo", **setting}, "algorithm")
