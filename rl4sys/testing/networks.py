"""Check of networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.algorithms.distributions import distribution_of
from rl4sys.config import parse
from rl4sys.errors import ExportError
from rl4sys.networks.base import (
    Blueprint,
    NetworkConfig,
    Recurrent,
    Tensors,
    action_outputs,
    build_network,
    count_parameters,
    memory_size,
)
from rl4sys.networks.state import module_state, restore_module
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.registry import NETWORKS
from rl4sys.spec import Box, Columns, Discrete, Spec
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.contents import checkpoint_of, contents_of, first_difference
from rl4sys.testing.policies import snapshot_acts_like_the_policy
from rl4sys.testing.randomness import watched_generators
from rl4sys.testing.rules import Check, Report, expect, rule
from rl4sys.testing.task import observe

_SPEC = Spec({"state": Box((5,))}, Discrete(3))
_ROUNDING = 1e-5


@dataclass(frozen=True)
class NetworkCase:
    """Network to check: its config, its observations and the number of its outputs."""

    spec: Spec
    config: NetworkConfig

    @property
    def blueprint(self) -> Blueprint:
        return Blueprint(self.spec, action_outputs(self.spec), allow_memory=True)

    def build(self, seed: int = 1) -> nn.Module:
        """Build the network, and change all weights, because biases of 0 and scales of 1 hide errors."""
        network, generator = self.build_first(seed), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for tensor in (*network.parameters(), *network.buffers()):
                if tensor.is_floating_point():
                    tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
        return network

    def build_first(self, seed: int = 1) -> nn.Module:
        return build_network(self.config, self.blueprint, seed)

    def observe(self, rows: int) -> dict[str, Any]:
        return observe(self.spec, np.random.default_rng(0), rows)


def check_network(network: Any, settings: Mapping[str, Any] | None = None, *, spec: Spec | None = None) -> Report:
    """Check a network class or function, registered or not, against the rules of networks.

    ``settings`` are the options of the network, as in the ``network`` block of a config. ``spec`` has the observations
    and the actions; by default, the observation is a vector of 5 numbers and the network has 3 outputs.

    >>> from rl4sys.networks.mlp import MLP
    >>> print(check_network(MLP, {"hidden_dims": [8]}))
    MLP follows all ...

    Raises `ContractError` with the first rule that does not hold, and `ConfigError` for settings that are not valid.
    """
    check = Check(network)
    check.follows(config_class_is_frozen_and_typed, getattr(network, "Config", None), NetworkConfig)
    with NETWORKS.under_a_name(network) as name:
        config = parse(network.Config, {"type": name, **(settings or {})}, "network")
        check.follows(config_is_restored_from_its_settings, config)
        check_built_network(check, NetworkCase(spec or _SPEC, config))
    return check.report()


def check_built_network(check: Check, case: NetworkCase) -> None:
    """Check the rules that do not concern the config."""
    check.follows(outputs_have_the_shape_of_the_blueprint, case)
    check.follows(seed_determines_the_initial_weights, case)
    check.follows(observations_are_not_changed, case)
    check.follows(rows_are_independent, case)
    check.follows(all_parameters_receive_gradients, case)
    check.follows(state_determines_the_outputs, case)
    check.follows(size_is_known_without_weights, case)
    check.follows(exported_network_computes_the_same, case)
    if memory_size(case.build()):
        check.follows(sequence_equals_single_steps, case)


@rule(
    "outputs have one row per observation and blueprint.outputs columns",
    "return a float32 tensor of shape (N, blueprint.outputs) from forward(observation)",
)
def outputs_have_the_shape_of_the_blueprint(case: NetworkCase) -> None:
    network = case.build()
    expect(
        isinstance(network, nn.Module), f"the network is of type {type(network).__name__}; expected a torch.nn.Module"
    )
    for rows in (1, 9):
        outputs = _outputs(network, case.observe(rows))
        wanted = (rows, case.blueprint.outputs)
        expect(tuple(outputs.shape) == wanted, f"outputs have shape {tuple(outputs.shape)}; expected {wanted}")
        expect(outputs.dtype == torch.float32, f"outputs have dtype {outputs.dtype}; expected float32")
        expect(outputs.isfinite().all(), "an output is NaN or infinite")
    expect(float(outputs.std(0).max()) > 1e-3, "outputs do not depend on the observation")


@rule(
    "the seed alone determines the initial weights",
    "draw initial weights from the global generator of torch, which is seeded while the network is built, and not from "
    "numpy or Python",
)
def seed_determines_the_initial_weights(case: NetworkCase) -> None:
    with watched_generators() as changed_generator:
        one, again, other = (contents_of(module_state(case.build_first(seed))) for seed in (1, 1, 2))
        differs, changed = first_difference(one, again), changed_generator()
    expect(not differs, f"the initial weights of {differs} differ between two networks with the same seed")
    expect(one != other, "the initial weights are the same for different seeds")
    expect(not changed, f"the network seeded or used the global generator of {changed}")


@rule(
    "each row is computed from its own observation alone",
    "do not mix rows, as batch normalization does, and use no random numbers, as dropout does: LayerNorm is supported",
)
def rows_are_independent(case: NetworkCase) -> None:
    network, seen = case.build(), case.observe(9)
    batched = _outputs(network, seen)
    single = torch.cat([_outputs(network, {name: c[row : row + 1] for name, c in seen.items()}) for row in range(9)])
    _expect_close(single, batched, "the outputs of single rows differ from those of a batch")


@rule("forward leaves observations unchanged", "do not modify observations in place: x = x + 1 instead of x += 1")
def observations_are_not_changed(case: NetworkCase) -> None:
    network, seen = case.build(), case.observe(4)
    before = contents_of(seen)
    _outputs(network, seen)
    changed = first_difference(before, contents_of(seen))
    expect(not changed, f"forward changed the observation {changed!r}")


@rule(
    "all parameters receive finite gradients",
    "use every layer in forward(), and do not call detach(), item() or numpy() on the way to the outputs",
)
def all_parameters_receive_gradients(case: NetworkCase) -> None:
    network = case.build()
    expect(any(True for _ in network.parameters()), "the network has no parameters")
    network(to_tensors(case.observe(4))).sum().backward()
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            expect(condition=False, observed=f"the parameter {name} has no gradient")
        else:
            expect(gradient.isfinite().all(), f"the gradient of the parameter {name} is NaN or infinite")


@rule(
    "the saved state determines the outputs",
    "keep weights as nn.Parameter and other tensors with register_buffer, so that state_dict() contains them",
)
def state_determines_the_outputs(case: NetworkCase) -> None:
    one, other, seen = case.build(), case.build_first(seed=2), case.observe(9)
    with checkpoint_of(module_state(one)) as saved:
        restore_module(other, saved)
    expected, got = _outputs(one, seen), _outputs(other, seen)
    expect(torch.equal(expected, got), "a network and a network restored from its state have different outputs")


@rule(
    "the size is known without allocating weights",
    "do not read the values of weights in __init__, because --dry-run builds the network without data",
)
def size_is_known_without_weights(case: NetworkCase) -> None:
    counted = count_parameters(case.config, case.blueprint)
    actual = sum(parameter.numel() for parameter in case.build_first().parameters())
    expect(counted == actual, f"the network has {actual} parameters, but {counted} when it is built without data")


@rule(
    "the exported network computes the same, or the export gives the reason",
    "make the operations and weights of export(prefix) compute the same as forward(); or do not define export()",
)
def exported_network_computes_the_same(case: NetworkCase) -> str:
    network, distribution = case.build(), distribution_of(case.spec.action)
    head = distribution.head(torch.zeros(distribution.deviations))
    policy = TorchPolicy(case.spec, network, *head)
    try:
        policy.snapshot(0)
    except ExportError as problem:
        return f"the network is not exported: {problem}"
    snapshot_acts_like_the_policy.check(policy, case.observe(50), exact=False)
    return ""


@rule(
    "a sequence of a recurrent network equals its single steps",
    "make sequence() compute the same as repeated calls of step(), make forward() one step from a memory of zeros, and "
    "do not change the memory that is passed",
)
def sequence_equals_single_steps(case: NetworkCase) -> None:
    network = case.build()
    assert isinstance(network, Recurrent)
    flat, rng = case.observe(3 * 12), np.random.default_rng(0)
    windows = to_tensors({name: column.reshape(3, 12, *column.shape[1:]) for name, column in flat.items()})
    start = torch.from_numpy((0.3 * rng.standard_normal((3, network.memory_size))).astype(np.float32))
    passed, memory = start.clone(), start
    with torch.no_grad():
        whole = network.sequence(windows, start)
        for step in range(12):
            outputs, memory = network.step({name: column[:, step] for name, column in windows.items()}, memory)
            _expect_close(whole[:, step], outputs, f"sequence() and step() differ in step {step}")
            expect(
                (tuple(memory.shape), memory.dtype) == ((3, network.memory_size), torch.float32),
                f"step() returned a memory of shape {tuple(memory.shape)} and dtype {memory.dtype}; expected shape "
                f"{(3, network.memory_size)} and float32",
            )
        first = {name: column[:, 0] for name, column in windows.items()}
        zero = network.step(first, torch.zeros(3, network.memory_size))[0]
        _expect_close(_forward(network, first), zero, "forward() differs from step() with a memory of zeros")
    expect(torch.equal(start, passed), "step() or sequence() changed the memory that was passed")


def _outputs(network: nn.Module, seen: Columns) -> Tensor:
    with torch.no_grad():
        return _forward(network, to_tensors(seen))


def _forward(network: Callable[[Tensors], Any], seen: Tensors) -> Tensor:
    outputs: Tensor = network(seen)
    return outputs


def _expect_close(got: Tensor, expected: Tensor, observed: str) -> None:
    difference = float((got - expected).abs().max())
    expect(difference <= _ROUNDING * max(1.0, float(expected.abs().max())), f"{observed} by up to {difference:.1e}")
