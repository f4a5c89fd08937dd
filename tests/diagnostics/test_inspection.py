"""Inspection of algorithms: training is unchanged, and the source of NaN and infinity is reported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.algorithms.base import Update
from rl4sys.diagnostics.health import GradientStatistics, InputStatistics, OutputStatistics
from rl4sys.diagnostics.inspection import BACKWARD, CHECKS, FORWARD, OPTIMIZER, Inspection
from rl4sys.diagnostics.parts import find_parts
from rl4sys.diagnostics.stopwatch import Stopwatch
from rl4sys.errors import NumericalError

from ..contracts.test_algorithms import CASES, contents, feed, make_learner

ONE_EACH = {name: case for case, (name, *_) in reversed(CASES.items())}


def counting_clock() -> Any:
    """Return a clock that counts 0, 1, 2 and so on."""
    return iter(map(float, range(10**9))).__next__


@pytest.mark.parametrize("name", ONE_EACH)
def test_inspection_does_not_change_training(name: str) -> None:
    # Inspected updates use torch, which rounds differently from the native core, so both sides use torch.
    plain, inspected = (make_learner(ONE_EACH[name], backend="torch") for _ in range(2))
    # Enough episodes for the first updates.
    episodes = 12 if CASES[ONE_EACH[name]][2].get("learning_starts") == 64 else 36
    feed(plain, ONE_EACH[name], episodes)
    inspection = Inspection(inspected.algorithm, Stopwatch(counting_clock()))
    inspected.algorithm = inspection.algorithm
    with inspection.installed():
        feed(inspected, ONE_EACH[name], episodes)
    assert plain.version > 0
    assert contents(inspected) == contents(plain)
    report = inspection.report()
    kinds = {key.partition("/")[0] for key in report.values}
    assert {"weights", "activations"} <= kinds
    assert all(np.isfinite(array).all() for array in report.values.values())


def test_networks_and_optimizers_are_named_by_attribute_path() -> None:
    parts = find_parts(make_learner("sac, continuous").algorithm)
    assert set(parts.networks) == {"actor", "critics.online", "critics.target", "temperature"}
    assert set(parts.optimizers) == {"critics.optimizer", "actor_optimizer", "temperature_optimizer"}
    assert "critics.online.members.0.hidden.layers.0" in parts.layers().values()


def test_hooks_are_removed_after_inspection() -> None:
    learner = make_learner("dqn")
    backward, grad = torch.autograd.backward, torch.autograd.grad
    inspection = Inspection(learner.algorithm, Stopwatch(counting_clock()))
    with inspection.installed():
        assert torch.autograd.backward is not backward
        assert any(module._forward_hooks for module in find_parts(learner.algorithm).layers())
    assert (torch.autograd.backward, torch.autograd.grad) == (backward, grad)
    assert not any(module._forward_hooks for module in find_parts(learner.algorithm).layers())


class Toy:
    """Minimal algorithm with a small network and a given loss function."""

    def __init__(self, loss: Any, lr: float = 0.1) -> None:
        self._net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=lr)
        self._loss = loss

    def update(self, batch: Any, steps: int) -> Update:
        self._optimizer.zero_grad()
        self._loss(self._net(torch.from_numpy(batch["obs.state"]))).backward()
        self._optimizer.step()
        return Update({})

    def state(self) -> Any:
        return {}

    def restore(self, state: Any) -> None:
        pass


def learn(toy: Toy, *, updates: int = 1, state: float = 1.0) -> Inspection:
    inspection = Inspection(toy, Stopwatch(counting_clock()))  # type: ignore[arg-type]
    with inspection.installed():
        for _ in range(updates):
            inspection.algorithm.update({"obs.state": np.full((4, 2), state, np.float32)}, 40)
    return inspection


def test_layer_with_nan_weights_is_reported() -> None:
    toy = Toy(torch.sum)
    with torch.no_grad():
        toy._net[2].weight[0, 1] = math.nan
    with pytest.raises(NumericalError) as problem:
        learn(toy)
    assert "the output of layer net.2 (Linear, 3 to 1) contains" in str(problem.value)
    assert "NaN in 4 of 4" in str(problem.value)
    assert "at step 40: its weight is not finite" in str(problem.value)


def test_layer_with_infinite_output_is_reported() -> None:
    toy = Toy(torch.sum)
    with torch.no_grad():
        toy._net[0].weight.fill_(3e38)
    with pytest.raises(
        NumericalError, match=r"net\.0 \(Linear, 2 to 3\).* infinity .* is finite, with values up to 1;"
    ):
        learn(toy)


def test_nan_gradient_is_reported_with_its_operation() -> None:
    with (
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        pytest.raises(NumericalError) as problem,
    ):
        learn(Toy(lambda outputs: (0 * outputs).sum().sqrt()))
    text = str(problem.value)
    assert "the gradient of net.2.bias contains NaN in 1 of 1 values at step 40, although the loss is finite" in text
    assert "Torch reports: Function 'MulBackward0' returned nan values" in text


def test_nonfinite_weight_after_update_is_reported() -> None:
    with pytest.raises(NumericalError, match=r"weight net\.\d\.\w+ contains .* after the update at step 40"):
        learn(Toy(lambda outputs: 1e30 * outputs.sum(), lr=1e30))


def test_infinite_input_is_reported() -> None:
    with pytest.raises(NumericalError, match=r"column 'obs\.state' of the batch at step 40 is not finite"):
        learn(Toy(torch.sum), state=math.inf)


def test_nonfinite_loss_is_reported_by_the_algorithm() -> None:
    learner = make_learner("ppo, discrete")
    inspection = Inspection(learner.algorithm, Stopwatch(counting_clock()))
    learner.algorithm = inspection.algorithm
    inspection._parts.networks["networks"].get_parameter("critic.output.bias").data.fill_(3e30)
    with inspection.installed(), pytest.raises(NumericalError) as problem:
        feed(learner, "ppo, discrete", 36)
    assert "the loss 'value' is not finite" in str(problem.value)
    assert "All layer outputs are finite; the largest is 3e+30 in networks.critic.output" in str(problem.value)


def test_phases_of_an_update_are_timed() -> None:
    watch = learn(Toy(torch.sum), updates=2)._watch
    assert {FORWARD, BACKWARD, OPTIMIZER, CHECKS} == set(watch.seconds)
    assert watch.counts[FORWARD] == watch.counts[BACKWARD] == watch.counts[OPTIMIZER] == 2


def test_time_is_charged_to_the_innermost_phase() -> None:
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    watch = Stopwatch(lambda: next(times))
    with watch.phase("outer"), watch.phase("inner"):
        pass
    # The phases are entered at 1 and 3 and left at 6 and 10.
    assert watch.seconds == {"outer": 2.0 + 4.0, "inner": 3.0}


def test_ram_is_charged_to_the_innermost_phase() -> None:
    sizes = iter([10, 20, 50, 45, 46])
    watch = Stopwatch(lambda: 0.0, lambda: next(sizes))
    with watch.phase("outer"), watch.phase("inner"):
        pass
    assert watch.growth == {"outer": 30 + 1, "inner": -5}
    assert watch.peaks == {"outer": 50, "inner": 50}


def texts(findings: Any) -> str:
    return "\n".join(finding.text for finding in findings)


def test_constant_and_large_inputs_are_reported() -> None:
    inputs, rng = InputStatistics(), np.random.default_rng(0)
    state = rng.normal(size=(300, 4)).astype(np.float32)
    state[:, 2], state[:, 0] = 7.0, 500 * state[:, 0]
    inputs.add({"obs.state": state}, 0)
    found = texts(inputs.findings())
    assert "1 of 4 elements of obs.state were constant in 300 training rows (index 2)" in found
    assert "set environment.normalize_obs" in found
    inputs.reset()
    inputs.add({"obs.state": rng.normal(size=(300, 4))}, 0)
    assert texts(inputs.findings()) == ""


@pytest.mark.parametrize(
    ("activation", "value", "expected"),
    [
        (nn.ReLU(), -9.0, "100% of the units of net.0.relu are dead: they were 0 for all of 300 rows"),
        (nn.ReLU(), 9.0, ""),
        (nn.Tanh(), 9.0, "100% of the outputs of net.0.tanh are saturated (beyond 0.99)"),
        (nn.Tanh(), 0.1, ""),
    ],
)
def test_dead_and_saturated_units_are_reported(activation: nn.Module, value: float, expected: str) -> None:
    outputs = OutputStatistics()
    given = torch.full((300, 5), value)
    outputs.add("net.0", nn.Linear(1, 5), given)
    outputs.add("net.1", activation, activation(given))
    found = texts(outputs.findings())
    assert expected in found
    assert bool(expected) == bool(found)


def test_exploding_vanishing_and_missing_gradients_are_reported() -> None:
    names = ["a.weight", "b.weight", "c.weight", "d.weight", "e.weight"]
    gradients = GradientStatistics(names)
    for name, size in zip(names, (2e4, 1e-3, 0.0, 3.0), strict=False):
        weight = nn.Parameter(torch.zeros(1))
        weight.grad = torch.full((1,), size)
        gradients.add(name, weight)
    found = texts(gradients.findings())
    assert "the gradient of a.weight explodes: its mean norm before clipping is 2e+04" in found
    assert (
        "the gradient of b.weight vanishes: its mean norm is 0.001, and the largest mean norm of a weight is 2e+04."
        in found
    )
    assert "the gradient of c.weight was always 0" in found
    assert "d.weight" not in found.replace("d.weight is 3", "")
    assert "no gradient reached e.weight" in found
