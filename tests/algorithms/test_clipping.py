"""Gradient clipping to a multiple of the running norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.algorithms.optimization import AUTO, descend, make_adam, make_rmsprop
from rl4sys.errors import ConfigError
from rl4sys.networks.state import optimizer_state, restore_optimizer

from ..conftest import SilentObserver, small_config


class Line(nn.Module):
    """Module with one weight; its gradient norm equals the slope of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


def make_sgd(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=1.0)


def step_length(module: Line, optimizer: torch.optim.Optimizer, slope: float) -> float:
    """Take one step on a loss with this slope; returns the change of the weight."""
    before = module.weight.item()
    norm = descend(optimizer, module, {"loss": (slope * module.weight).sum()}, AUTO, steps=0)
    assert norm == pytest.approx(slope)
    return before - module.weight.item()


def test_outlier_is_clipped_to_three_times_the_running_norm() -> None:
    module = Line()
    optimizer = make_sgd(module)
    assert [step_length(module, optimizer, 2.0) for _ in range(5)] == pytest.approx([2.0] * 5)
    assert step_length(module, optimizer, 1000.0) == pytest.approx(6.0, rel=1e-4)
    assert step_length(module, optimizer, 2.5) == pytest.approx(2.5, rel=1e-4)
    running = (5 * 2.0 + 6.0 + 2.5) / 7
    assert step_length(module, optimizer, 1000.0) == pytest.approx(3 * running, rel=1e-4), (
        "an outlier should be added after clipping"
    )


def test_running_norm_adapts_to_permanently_larger_gradients() -> None:
    module = Line()
    optimizer = make_sgd(module)
    for _ in range(200):
        step_length(module, optimizer, 1.0)
    after = [step_length(module, optimizer, 1000.0) for _ in range(600)]
    assert after[0] == pytest.approx(3.0, rel=1e-4)
    assert after[-1] == pytest.approx(1000.0, rel=1e-4)


def test_zero_gradients_do_not_limit_later_gradients() -> None:
    module = Line()
    optimizer = make_sgd(module)
    assert step_length(module, optimizer, 0.0) == 0.0
    assert step_length(module, optimizer, 5.0) == pytest.approx(5.0)


@pytest.mark.parametrize("make", [lambda m: make_adam(m, 1e-3, 1e-8), lambda m: make_rmsprop(m, 1e-3), make_sgd])
def test_running_norm_is_saved_with_the_optimizer(make: Any) -> None:
    (first, second), slope = (Line(), Line()), [1.0, 3.0, 2.0, 40.0, 1.0]
    optimizer, again = make(first), make(second)
    for each in slope:
        step_length(first, optimizer, each)
    second.load_state_dict(first.state_dict())
    restore_optimizer(again, optimizer_state(optimizer))
    for steep in (100.0, 1.0, 100.0):
        assert step_length(first, optimizer, steep) == step_length(second, again, steep)
    assert optimizer_state(again)["usual_norm"]["count"] == len(slope) + 3


def test_fixed_max_grad_norm_stores_no_running_norm() -> None:
    module = Line()
    optimizer = make_sgd(module)
    descend(optimizer, module, {"loss": (5 * module.weight).sum()}, 1.0, steps=0)
    assert module.weight.item() == pytest.approx(-1.0)
    assert optimizer_state(optimizer) == {}


@pytest.mark.parametrize("given", ["0", "-1", "never", ".nan", "null"])
def test_invalid_max_grad_norm_is_rejected(given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm.max_grad_norm is .*; expected a number above 0, or 'auto' \(Maximum"
    ):
        small_config("ppo", f"algorithm.max_grad_norm={given}")


def test_resume_is_bit_exact_with_auto_clipping(make_loop: Any) -> None:
    class StopAfterFiveRounds(SilentObserver):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == 5:
                stopped.stop()

    short, change = "training.total_timesteps=300", "algorithm.max_grad_norm=auto"
    straight, stopped = make_loop("sac", short, change), make_loop("sac", short, change, observer=StopAfterFiveRounds())
    straight.train()
    stopped.train()
    resumed = make_loop("sac", run=stopped._run)
    resumed.resume()
    resumed.train()
    fixed = make_loop("sac", short)
    fixed.train()
    weights = [dict(trainer._learner.snapshot().weights) for trainer in (straight, resumed, fixed)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(np.array_equal(weights[0][name], weights[2][name]) for name in weights[0]), (
        "auto clipping should change the weights"
    )
