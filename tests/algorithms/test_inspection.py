"""Looking into algorithms: nothing that is learnt changes, and what spoils the numbers is named."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.algorithms.base import Update
from rl4sys.algorithms.health import Gradients, Inputs, Outputs
from rl4sys.algorithms.inspection import BACKWARD, CHECKS, FORWARD, OPTIMIZER, Inspection
from rl4sys.algorithms.parts import find_parts
from rl4sys.algorithms.stopwatch import Stopwatch
from rl4sys.errors import NumericalError

from ..contracts.test_algorithms import CASES, contents, feed, make_learner

ONE_EACH = {name: case for case, (name, *_) in reversed(CASES.items())}


def counting() -> Any:
    """A clock that says 0, 1, 2, …"""
    return iter(map(float, range(10**9))).__next__


@pytest.mark.parametrize("name", ONE_EACH)
def test_an_algorithm_that_is_looked_into_learns_the_same(name: str) -> None:
    # Torch computes what is looked into, as it is told to here in both: the core rounds whole updates off differently.
    plain, seen = (make_learner(ONE_EACH[name], backend="torch") for _ in range(2))
    # Enough for the first updates.
    episodes = 12 if CASES[ONE_EACH[name]][2].get("learning_starts") == 64 else 36
    feed(plain, ONE_EACH[name], episodes)
    inspection = Inspection(seen.algorithm, Stopwatch(counting()))
    seen.algorithm = inspection.algorithm
    with inspection.installed():
        feed(seen, ONE_EACH[name], episodes)
    assert plain.version > 0
    assert contents(seen) == contents(plain)
    report = inspection.report()
    kinds = {key.partition("/")[0] for key in report.values}
    assert {"weights", "activations"} <= kinds
    assert all(np.isfinite(array).all() for array in report.values.values())


def test_the_parts_of_an_algorithm_go_by_its_attributes() -> None:
    parts = find_parts(make_learner("sac, numbers").algorithm)
    assert set(parts.networks) == {"actor", "critics.online", "critics.target", "temperature"}
    assert set(parts.optimizers) == {"critics.optimizer", "actor_optimizer", "temperature_optimizer"}
    assert "critics.online.members.0.hidden.layers.0" in parts.layers().values()


def test_afterwards_everything_is_as_it_was() -> None:
    learner = make_learner("dqn")
    backward, grad = torch.autograd.backward, torch.autograd.grad
    inspection = Inspection(learner.algorithm, Stopwatch(counting()))
    with inspection.installed():
        assert torch.autograd.backward is not backward
        assert any(module._forward_hooks for module in find_parts(learner.algorithm).layers())
    assert (torch.autograd.backward, torch.autograd.grad) == (backward, grad)
    assert not any(module._forward_hooks for module in find_parts(learner.algorithm).layers())


class Toy:
    """An algorithm of one layer, whose loss is given."""

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
    inspection = Inspection(toy, Stopwatch(counting()))  # type: ignore[arg-type]
    with inspection.installed():
        for _ in range(updates):
            inspection.algorithm.update({"obs.state": np.full((4, 2), state, np.float32)}, 40)
    return inspection


def test_a_layer_whose_weights_are_no_numbers_is_named() -> None:
    toy = Toy(torch.sum)
    with torch.no_grad():
        toy._net[2].weight[0, 1] = math.nan
    with pytest.raises(NumericalError) as problem:
        learn(toy)
    assert "the layer net.2 (Linear, 3 to 1) gives numbers of which" in str(problem.value)
    assert "NaN in 4 of 4" in str(problem.value)
    assert "at step 40: its weight is not finite" in str(problem.value)


def test_a_layer_whose_numbers_grow_too_large_is_named() -> None:
    toy = Toy(torch.sum)
    with torch.no_grad():
        toy._net[0].weight.fill_(3e38)
    with pytest.raises(NumericalError, match=r"net\.0 \(Linear, 2 to 3\).* infinity .* is finite, and reaches 1;"):
        learn(toy)


def test_a_gradient_that_is_no_number_is_named_with_its_operation() -> None:
    with (
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        pytest.raises(NumericalError) as problem,
    ):
        learn(Toy(lambda outputs: (0 * outputs).sum().sqrt()))
    text = str(problem.value)
    assert "the gradient of net.2.bias holds NaN in 1 of 1 numbers at step 40, and the loss is finite" in text
    assert "Torch says: Function 'MulBackward0' returned nan values" in text


def test_a_weight_that_is_no_number_after_its_update_is_named() -> None:
    with pytest.raises(NumericalError, match=r"the weight net\.\d\.\w+ holds .* after the update at step 40"):
        learn(Toy(lambda outputs: 1e30 * outputs.sum(), lr=1e30))


def test_an_input_that_is_no_number_is_named() -> None:
    with pytest.raises(NumericalError, match=r"the column obs\.state of the batch at step 40 is not finite"):
        learn(Toy(torch.sum), state=math.inf)


def test_a_loss_that_is_no_number_is_left_to_the_algorithm_to_name() -> None:
    learner = make_learner("ppo, choices")
    inspection = Inspection(learner.algorithm, Stopwatch(counting()))
    learner.algorithm = inspection.algorithm
    inspection._parts.networks["networks"].get_parameter("critic.output.bias").data.fill_(3e30)
    with inspection.installed(), pytest.raises(NumericalError) as problem:
        feed(learner, "ppo, choices", 36)
    assert "the loss 'value' is not finite" in str(problem.value)
    assert "All layers gave finite numbers; the largest, 3e+30, came from networks.critic.output" in str(problem.value)


def test_what_an_update_does_is_timed_apart() -> None:
    watch = learn(Toy(torch.sum), updates=2)._watch
    assert {FORWARD, BACKWARD, OPTIMIZER, CHECKS} == set(watch.seconds)
    assert watch.times[FORWARD] == watch.times[BACKWARD] == watch.times[OPTIMIZER] == 2


def test_each_moment_is_counted_once() -> None:
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    watch = Stopwatch(lambda: next(times))
    with watch.phase("outer"), watch.phase("inner"):
        pass
    # Entered at 1 and 3, left at 6 and 10.
    assert watch.seconds == {"outer": 2.0 + 4.0, "inner": 3.0}


def texts(findings: Any) -> str:
    return "\n".join(finding.text for finding in findings)


def test_inputs_that_never_change_or_are_large_are_told() -> None:
    inputs, rng = Inputs(), np.random.default_rng(0)
    state = rng.normal(size=(300, 4)).astype(np.float32)
    state[:, 2], state[:, 0] = 7.0, 500 * state[:, 0]
    inputs.see({"obs.state": state}, 0)
    found = texts(inputs.findings())
    assert "1 of the 4 numbers of obs.state never changed in 300 rows that were learnt from (number 2)" in found
    assert "set environment.normalize_obs" in found
    inputs.begin()
    inputs.see({"obs.state": rng.normal(size=(300, 4))}, 0)
    assert texts(inputs.findings()) == ""


@pytest.mark.parametrize(
    ("activation", "reach", "told"),
    [
        (nn.ReLU(), -9.0, "100% of the units of net.0.relu gave 0 for all of 300 rows"),
        (nn.ReLU(), 9.0, ""),
        (nn.Tanh(), 9.0, "100% of what net.0.tanh gives is beyond 0.99: saturated"),
        (nn.Tanh(), 0.1, ""),
    ],
)
def test_dead_and_saturated_units_are_told(activation: nn.Module, reach: float, told: str) -> None:
    outputs = Outputs()
    given = torch.full((300, 5), reach)
    outputs.see("net.0", nn.Linear(1, 5), given)
    outputs.see("net.1", activation, activation(given))
    found = texts(outputs.findings())
    assert told in found
    assert bool(told) == bool(found)


def test_gradients_that_explode_vanish_or_never_come_are_told() -> None:
    names = ["a.weight", "b.weight", "c.weight", "d.weight", "e.weight"]
    gradients = Gradients(names)
    for name, size in zip(names, (2e4, 1e-3, 0.0, 3.0), strict=False):
        weight = nn.Parameter(torch.zeros(1))
        weight.grad = torch.full((1,), size)
        gradients.see(name, weight)
    found = texts(gradients.findings())
    assert "the gradient of a.weight is 2e+04 long on average, before clipping: exploding" in found
    assert "the gradient of b.weight is 0.001 long on average, and the largest of its algorithm 2e+04: vanish" in found
    assert "the gradient of c.weight was 0 throughout" in found
    assert "d.weight" not in found.replace("d.weight is 3", "")
    assert "no gradient reached e.weight" in found
