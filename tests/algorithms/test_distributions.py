"""Action distributions of actors against torch.distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from rl4sys.algorithms.distributions import DistributionParams, distribution_of, legal_logits
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.spec import Box, MultiDiscrete, Spec
from rl4sys.trajectory import Trajectory

NOTHING = torch.zeros(0)


def rows_of(seed: int, size: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(50, size)).astype(np.float32))


def torch_distributions(logits: Tensor, parts: tuple[int, ...]) -> list[Categorical]:
    """Return one torch distribution per action dimension."""
    return [Categorical(logits=part) for part in logits.split(parts, -1)]


@pytest.mark.parametrize("parts", [(3, 1, 4), (2, 2, 2), (5,)])
@pytest.mark.parametrize("masked", [True, False])
def test_multi_discrete_log_prob_and_entropy_are_sums_over_dimensions(parts: tuple[int, ...], masked: bool) -> None:
    size, rng = sum(parts), np.random.default_rng(0)
    mask = torch.from_numpy(rng.random((50, size)) < 0.5)
    mask[:, np.cumsum(parts) - 1] = True
    old, new = (
        DistributionParams(legal_logits(rows_of(seed, size), mask if masked else None), NOTHING) for seed in (1, 2)
    )
    distribution = distribution_of(MultiDiscrete(parts))
    action = torch.stack([part.sample() for part in torch_distributions(new.outputs, parts)], dim=1)
    log_prob, entropy = distribution.terms(new, action)
    expected = [
        part.log_prob(chosen) for part, chosen in zip(torch_distributions(new.outputs, parts), action.T, strict=True)
    ]
    torch.testing.assert_close(log_prob, torch.stack(expected).sum(0), atol=1e-5, rtol=1e-5)
    entropies = torch.stack([part.entropy() for part in torch_distributions(new.outputs, parts)])
    torch.testing.assert_close(entropy, entropies.sum(0), atol=1e-5, rtol=1e-5)
    pairs = zip(torch_distributions(old.outputs, parts), torch_distributions(new.outputs, parts), strict=True)
    divergence = torch.stack([kl_divergence(*pair) for pair in pairs]).sum(0)
    torch.testing.assert_close(distribution.kl(old, new), divergence, atol=1e-4, rtol=1e-4)
    assert (divergence > 0).any()


def test_illegal_action_of_one_dimension_gets_no_gradient() -> None:
    logits = torch.zeros(1, 5, requires_grad=True)
    mask = torch.tensor([[True, True, False, True, True]])
    params = DistributionParams(legal_logits(logits, mask), NOTHING)
    log_prob, entropy = distribution_of(MultiDiscrete((3, 2))).terms(params, torch.tensor([[0, 1]]))
    (log_prob + entropy).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0
    assert logits.grad[0, 4] > 0


def test_trpo_trust_region_includes_the_standard_deviation() -> None:
    """Regression test: the line search changes log_std in place, and the KL divergence once ignored this change."""
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "trpo", "max_kl": 0.05, "normalize_advantage": False}),
        networks=parse_networks({"actor": {"hidden_dims": []}}, "trpo"),
        buffer=parse_buffer({"size": 200}, "trpo"),
    )
    spec = Spec({"state": Box((1,))}, Box((1,)))
    learner, rng = build_learner(spec, config, seed=1), np.random.default_rng(0)
    action = rng.normal(size=(200, 1)).astype(np.float32)
    columns = {
        "obs.state": np.zeros((201, 1), np.float32),
        "action": action,
        # Reward grows with the distance from the mean, so only the standard deviation should increase.
        "reward": np.abs(action[:, 0]) - 1,
        "log_prob": (-0.5 * action[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)).astype(np.float32),
    }
    (measured,) = learner.learn([Trajectory(0, columns, terminated=True)])
    snapshot = learner.snapshot()
    log_std, mean = snapshot.weights["log_std"][0], snapshot.weights["actor.0.bias"][0]
    divergence = log_std + 0.5 * (np.exp(-2 * log_std) * (1 + mean**2) - 1)
    assert abs(log_std) > 0.05
    assert measured["policy/kl"] == pytest.approx(divergence, rel=0.02)
    assert 0 < divergence <= 0.05
