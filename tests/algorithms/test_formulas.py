"""Formulas of the algorithms against hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from rl4sys.algorithms.a2c import policy_gradient_loss
from rl4sys.algorithms.c51 import project
from rl4sys.algorithms.distributions import categorical_kl, gaussian_kl
from rl4sys.algorithms.dqn import best_legal, values_of_action
from rl4sys.algorithms.iql import advantage_weight, expectile_loss
from rl4sys.algorithms.off_policy import td_target, weighted_mean
from rl4sys.algorithms.qr_dqn import quantile_loss
from rl4sys.algorithms.reinforce import complete_steps
from rl4sys.algorithms.sac import squashed_sample, temperature_loss
from rl4sys.algorithms.sql import soft_value, stein_direction
from rl4sys.algorithms.td3 import smoothed
from rl4sys.algorithms.trpo import conjugate_gradients


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_td_target_bootstraps_after_truncation_but_not_termination() -> None:
    target = td_target(t(1, 1), t(0.9, 0.9), torch.tensor([True, False]), t(10, 10))
    assert target.tolist() == pytest.approx([1.0, 10.0])


def test_weighted_mean_multiplies_rows_by_importance_weights() -> None:
    assert weighted_mean(t(1, 3), {}).item() == 2.0
    assert weighted_mean(t(1, 3), {"weight": t(1, 0.5)}).item() == pytest.approx(1.25)


def test_best_action_is_legal() -> None:
    values = torch.tensor([[1.0, 5.0, 3.0], [1.0, 5.0, 3.0]])
    mask = torch.tensor([[True, True, True], [True, False, True]])
    action = best_legal(values, mask)
    assert action.tolist() == [[1], [2]]
    assert values_of_action(values, action).tolist() == [5.0, 3.0]
    assert values_of_action(values.unsqueeze(-1).expand(-1, -1, 4), torch.tensor([0, 2]))[:, 3].tolist() == [1.0, 3.0]


def test_policy_gradient_is_weighted_log_probability() -> None:
    log_prob = t(-1.0, -2.0).requires_grad_()
    loss = policy_gradient_loss(log_prob, t(3.0, -1.0), t(1.0, 0.5))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(-(-3.0 + 1.0) / 2)
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx([-1.5, 0.25])


def test_complete_steps_belong_to_ended_episodes() -> None:
    last = np.array([False, True, False, False, True, True])
    ended = np.array([False, True, False, False, False, True])
    assert complete_steps(last, ended).tolist() == [True, True, False, False, False, True]


def test_conjugate_gradients_solve_symmetric_system() -> None:
    matrix, target = torch.tensor([[4.0, 1.0], [1.0, 3.0]]), t(1.0, 2.0)
    solution = conjugate_gradients(lambda x: matrix @ x, target, steps=2)
    assert solution.tolist() == pytest.approx([1 / 11, 7 / 11], abs=1e-6)


def test_kl_divergences_match_textbook_formulas() -> None:
    p, q = t(0.5, 0.5), t(0.9, 0.1)
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert categorical_kl(p.log()[None], q.log()[None]).item() == pytest.approx(expected, rel=1e-5)
    normal = torch.distributions.Normal
    old, new = normal(t(0.0, 1.0), t(1.0, 0.5)), normal(t(0.5, 1.0), t(2.0, 0.5))
    divergence = torch.distributions.kl_divergence(old, new).sum().item()
    ours = gaussian_kl(old.mean[None], old.stddev.log(), new.mean[None], new.stddev.log())
    assert ours.item() == pytest.approx(divergence, rel=1e-5)


def test_smoothed_target_action_stays_in_range() -> None:
    assert smoothed(t(0.0, 0.9, -0.9), t(0.3, 0.9, -0.1), 0.5).tolist() == pytest.approx([0.3, 1.0, -1.0])


def test_squashed_sample_has_correct_density() -> None:
    outputs, noise = torch.tensor([[0.3, -0.5, -1.0, 0.2]]), torch.tensor([[0.7, -1.1]])
    action, log_prob = squashed_sample(outputs, noise)
    base = torch.distributions.Normal(outputs[:, :2].double(), outputs[:, 2:].double().exp())
    squashed = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform())
    assert log_prob.item() == pytest.approx(squashed.log_prob(action.double()).sum().item(), abs=1e-4)
    assert action[0, 0].item() == pytest.approx(math.tanh(0.3 + math.exp(-1.0) * 0.7), rel=1e-5)


def test_temperature_rises_when_entropy_is_low() -> None:
    for entropy, falls in ((0.5, False), (-3.0, True)):
        logarithm = t(0.0).requires_grad_()
        temperature_loss(logarithm, t(entropy), -1.0).backward()  # type: ignore[no-untyped-call]
        assert logarithm.grad is not None
        assert (logarithm.grad.item() < 0) == falls


def test_projection_of_return_distribution_keeps_the_mean() -> None:
    support, values = torch.linspace(0, 4, 5), torch.tensor([[0.5, 1.0, 9.0, -3.0, 4.0]])
    probability = torch.tensor([[0.4, 0.2, 0.1, 0.2, 0.1]])
    projected = project(values, probability, support)
    assert projected.tolist()[0] == pytest.approx([0.2 + 0.2, 0.2 + 0.2, 0.0, 0.0, 0.1 + 0.1])
    inside = project(torch.tensor([[0.25, 1.5, 2.0, 3.75, 4.0]]), probability, support)
    assert (inside @ support).item() == pytest.approx(0.4 * 0.25 + 0.2 * 1.5 + 0.1 * 2 + 0.2 * 3.75 + 0.1 * 4)


def test_quantile_loss_is_asymmetric() -> None:
    # Two quantiles at .25 and .75, one sample: errors 2 and -2 with a Huber loss of 1.5.
    loss = quantile_loss(torch.tensor([[0.0, 4.0]]), torch.tensor([[2.0]]))
    assert loss.item() == pytest.approx(0.25 * 1.5 + 0.25 * 1.5)
    assert quantile_loss(torch.tensor([[4.0, 0.0]]), torch.tensor([[2.0]])).item() == pytest.approx(0.75 * 3)


def test_soft_value_matches_hand_computation() -> None:
    assert soft_value(torch.full((3, 7), 2.0), 2).tolist() == pytest.approx([2 + 2 * math.log(2)] * 3)
    assert soft_value(t(0.0, math.log(3)), 1).item() == pytest.approx(math.log(4 / 2) + math.log(2))


def test_stein_direction_matches_hand_computation() -> None:
    pushing, pushed = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.25]])
    distance = [0.0625, 0.5625]
    width = 0.0625 / math.log(3)  # torch's median is the lower of two
    kernel = [math.exp(-d / width) for d in distance]
    slope = [-2 * (0.0 - 0.25) / width * kernel[0], -2 * (1.0 - 0.25) / width * kernel[1]]
    expected = (kernel[0] * 3.0 + slope[0] + kernel[1] * -1.0 + slope[1]) / 2
    assert stein_direction(pushing, pushed, torch.tensor([[3.0], [-1.0]])).item() == pytest.approx(expected, rel=1e-5)


def test_expectile_loss_is_asymmetric() -> None:
    assert expectile_loss(t(2.0, -2.0), 0.7).tolist() == pytest.approx([2.8, 1.2])
    assert advantage_weight(t(0.0, 1.0, 50.0), 3.0).tolist() == pytest.approx([1.0, math.exp(3), 100.0])
