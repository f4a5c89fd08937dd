"""Gradients shortened to what is usual for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.algorithms.numerics import AUTO, descend, make_adam, make_rmsprop
from rl4sys.errors import ConfigError
from rl4sys.networks.state import optimizer_state, restore_optimizer

from ..conftest import Silent, small_config


class Line(nn.Module):
    """Gradients of its one weight are as long as the loss is steep."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


def plain(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=1.0)


def moved(module: Line, optimizer: torch.optim.Optimizer, steepness: float) -> float:
    """How far the weight went down a loss so steep."""
    before = module.weight.item()
    norm = descend(optimizer, module, {"loss": (steepness * module.weight).sum()}, AUTO, steps=0)
    assert norm == pytest.approx(steepness)
    return before - module.weight.item()


def test_an_outlier_is_shortened_to_three_times_what_is_usual() -> None:
    module = Line()
    optimizer = plain(module)
    assert [moved(module, optimizer, 2.0) for _ in range(5)] == pytest.approx([2.0] * 5)
    assert moved(module, optimizer, 1000.0) == pytest.approx(6.0, rel=1e-4)
    assert moved(module, optimizer, 2.5) == pytest.approx(2.5, rel=1e-4)
    usual = (5 * 2.0 + 6.0 + 2.5) / 7
    assert moved(module, optimizer, 1000.0) == pytest.approx(3 * usual, rel=1e-4), "an outlier counts as shortened"


def test_lasting_growth_is_followed() -> None:
    module = Line()
    optimizer = plain(module)
    for _ in range(200):
        moved(module, optimizer, 1.0)
    after = [moved(module, optimizer, 1000.0) for _ in range(600)]
    assert after[0] == pytest.approx(3.0, rel=1e-4)
    assert after[-1] == pytest.approx(1000.0, rel=1e-4)


def test_gradients_of_nothing_say_nothing_of_what_is_usual() -> None:
    module = Line()
    optimizer = plain(module)
    assert moved(module, optimizer, 0.0) == 0.0
    assert moved(module, optimizer, 5.0) == pytest.approx(5.0)


@pytest.mark.parametrize("make", [lambda m: make_adam(m, 1e-3, 1e-8), lambda m: make_rmsprop(m, 1e-3), plain])
def test_what_is_usual_is_saved_with_the_optimiser(make: Any) -> None:
    (first, second), steepness = (Line(), Line()), [1.0, 3.0, 2.0, 40.0, 1.0]
    optimizer, again = make(first), make(second)
    for steep in steepness:
        moved(first, optimizer, steep)
    second.load_state_dict(first.state_dict())
    restore_optimizer(again, optimizer_state(optimizer))
    for steep in (100.0, 1.0, 100.0):
        assert moved(first, optimizer, steep) == moved(second, again, steep)
    assert optimizer_state(again)["usual_norm"]["count"] == len(steepness) + 3


def test_a_number_for_the_norm_keeps_no_count_of_norms() -> None:
    module = Line()
    optimizer = plain(module)
    descend(optimizer, module, {"loss": (5 * module.weight).sum()}, 1.0, steps=0)
    assert module.weight.item() == pytest.approx(-1.0)
    assert optimizer_state(optimizer) == {}


@pytest.mark.parametrize("given", ["0", "-1", "never", ".nan", "null"])
def test_what_is_neither_a_length_nor_auto_is_refused(given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm.max_grad_norm is .*; it should be a number above 0, or auto \(Gr"
    ):
        small_config("ppo", f"algorithm.max_grad_norm={given}")


def test_a_run_clipped_by_what_is_usual_resumes_as_if_never_stopped(make_trainer: Any) -> None:
    class StopsAfter(Silent):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == 5:
                stopped.stop()

    short, change = "training.total_timesteps=300", "algorithm.max_grad_norm=auto"
    straight, stopped = make_trainer("sac", short, change), make_trainer("sac", short, change, observer=StopsAfter())
    straight.train()
    stopped.train()
    resumed = make_trainer("sac", run=stopped._run)
    resumed.resume()
    resumed.train()
    fixed = make_trainer("sac", short)
    fixed.train()
    learnt = [dict(trainer._learner.snapshot().weights) for trainer in (straight, resumed, fixed)]
    assert all(np.array_equal(learnt[0][name], learnt[1][name]) for name in learnt[0])
    assert not all(np.array_equal(learnt[0][name], learnt[2][name]) for name in learnt[0]), "it should clip something"
