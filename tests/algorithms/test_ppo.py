"""PPO's formulas by hand, and its update on batches small enough to reason about."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from rl4sys.algorithms.base import Recipe
from rl4sys.algorithms.ppo import (
    PPO,
    PPOConfig,
    categorical_terms,
    clipped_policy_loss,
    gaussian_terms,
    kl_estimate,
    value_loss,
)
from rl4sys.buffers.base import transitions
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.networks.state import optimizer_state
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory


def t(*values: float) -> Tensor:
    return torch.tensor(values)


def test_the_gain_is_clipped_where_it_would_tempt_too_far() -> None:
    old = t(0.0, 0.0, 0.0, 0.0)
    log_prob = torch.log(t(1.5, 0.5, 1.5, 0.5))
    advantage = t(1.0, 1.0, -1.0, -1.0)
    # min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5; min(-1.5, -1.2) = -1.5; min(-0.5, -0.8) = -0.8
    assert clipped_policy_loss(log_prob, old, advantage, 0.2).item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_beyond_the_clip_there_is_no_pull_further() -> None:
    log_prob = torch.log(t(1.5, 1.1)).requires_grad_()
    clipped_policy_loss(log_prob, t(0.0, 0.0), t(1.0, 1.0), 0.2).backward()
    assert log_prob.grad is not None
    assert log_prob.grad[0] == 0
    assert log_prob.grad[1] == pytest.approx(-1.1 / 2)


def test_the_value_loss_is_half_the_squared_error() -> None:
    assert value_loss(t(1.0, 3.0), t(0.0, 0.0), t(2.0, 0.0), None).item() == pytest.approx(0.5 * (1 + 9) / 2)


def test_a_clipped_value_counts_the_larger_error() -> None:
    # Moved from 0 to 3, allowed 0.5: errors to the target 2 are 1 and (0.5 - 2)^2 = 2.25.
    assert value_loss(t(3.0), t(0.0), t(2.0), 0.5).item() == pytest.approx(0.5 * 2.25)


def test_the_kl_estimate_is_zero_only_for_equal_policies() -> None:
    assert kl_estimate(t(-1.0, -2.0), t(-1.0, -2.0)).item() == 0
    ratio = 0.5
    assert kl_estimate(torch.log(t(ratio)), t(0.0)).item() == pytest.approx(ratio - 1 - math.log(ratio))


def test_categorical_terms_are_those_of_the_legal_actions() -> None:
    logits, mask = torch.log(t(1.0, 2.0, 5.0)).repeat(2, 1), torch.tensor([[True, True, True], [True, True, False]])
    log_prob, entropy = categorical_terms(logits, torch.tensor([2, 1]), mask)
    assert log_prob.exp().tolist() == pytest.approx([5 / 8, 2 / 3])
    by_hand = [-sum(p * math.log(p) for p in row) for row in ([1 / 8, 2 / 8, 5 / 8], [1 / 3, 2 / 3])]
    assert entropy.tolist() == pytest.approx(by_hand)


def test_an_illegal_action_gets_no_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    log_prob, entropy = categorical_terms(logits, torch.tensor([0]), torch.tensor([[True, True, False]]))
    (log_prob + entropy).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


def test_gaussian_terms_are_those_of_torch() -> None:
    rng = np.random.default_rng(0)
    mean, action = (torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32)) for _ in range(2))
    log_std = t(-0.5, 0.0, 0.7)
    normal = torch.distributions.Normal(mean, log_std.exp())
    log_prob, entropy = gaussian_terms(mean, log_std, action)
    torch.testing.assert_close(log_prob, normal.log_prob(action).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))


SPEC = Spec({"state": Box((2,))}, Discrete(2))


def make_ppo(**options: object) -> PPO:
    config = PPOConfig.model_validate({"name": "ppo", "gamma": 0.5, "gae_lambda": 1.0, "minibatch_size": 8, **options})
    buffer = RolloutConfig(type="trajectory", size=6)
    return PPO(Recipe(SPEC, config, {}, buffer, np.random.SeedSequence(1), total_timesteps=100))


def rollout(end: str) -> dict[str, np.ndarray]:
    """Three steps that pay 1 each and end in ``end``."""
    states = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    columns = {"obs.state": states, "action": np.array([0, 1, 1]), "reward": np.ones(3, np.float32)}
    columns["log_prob"] = np.full(3, math.log(0.5), np.float32)
    return transitions(Trajectory(0, columns, terminated=end == "terminated", truncated=end == "truncated"))


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut"])
def test_only_a_terminated_episode_has_nothing_after_it(end: str) -> None:
    ppo, batch = make_ppo(), rollout(end)
    with torch.no_grad():
        led_to = float(ppo._value({"state": torch.from_numpy(batch["next_obs.state"][-1:])}))
    prepared = ppo._with_advantages(batch)
    after = 0.0 if end == "terminated" else led_to
    assert led_to != 0, "a value of nothing would make the cases equal"
    assert prepared["return"].tolist() == pytest.approx([1.75 + after / 8, 1.5 + after / 4, 1 + after / 2], abs=1e-6)


def test_an_update_ends_early_once_the_policy_moved_far_enough() -> None:
    free, held = make_ppo(lr=0.1, epochs=50), make_ppo(lr=0.1, epochs=50, target_kl=1e-4)
    for ppo in (free, held):
        ppo.update(rollout("terminated"), steps=0)
    steps = [float(next(iter(optimizer_state(ppo._optimizer).values()))["step"]) for ppo in (free, held)]
    assert steps[0] == 50
    assert 1 <= steps[1] < 50


def test_schedules_reach_the_optimiser() -> None:
    ppo = make_ppo(lr={"start": 0.1, "end": 0.0}, epochs=1)
    assert [ppo.update(rollout("terminated"), steps=s).metrics["policy/lr"] for s in (0, 50, 100)] == [0.1, 0.05, 0.0]
