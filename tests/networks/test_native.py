"""Outputs, gradients and optimizer steps of the native core match torch."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl4sys.algorithms.core_optimizers import CoreAdam, clipped_step
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.networks.base import Blueprint, build_network
from rl4sys.networks.mlp import MLP, MLPConfig
from rl4sys.networks.native import compute_natively
from rl4sys.networks.noisy import resample_noise
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Box, Discrete, Spec

pytestmark = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

SHAPES = [
    (1, 1, [], 1),
    (3, 5, [7], 2),
    (64, 8, [64, 64], 4),
    (17, 23, [33, 15, 9], 1),
    (128, 17, [256, 256], 12),
    (7, 40, [16], 202),
]


def make(inputs: int, outputs: int, **settings: object) -> MLP:
    spec = Spec({"state": Box((inputs,))}, Discrete(2))
    network = build_network(MLPConfig.model_validate(settings), Blueprint(spec, outputs), seed=5)
    assert isinstance(network, MLP)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) if parameter.dim() == 1 else 0)
    return network


def outputs_and_gradients(network: nn.Module, rows: Tensor, weight: Tensor) -> list[Tensor]:
    """Return the outputs, and the gradients of the weighted sum of the outputs for the rows and all parameters."""
    network.zero_grad()
    rows = rows.clone().requires_grad_()
    outputs = network({"state": rows})
    (outputs * weight).sum().backward()
    assert rows.grad is not None
    return [outputs.detach(), rows.grad, *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


def assert_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        scale = float(other.abs().max()) + 1e-6
        assert float((mine - other).abs().max()) <= 1e-5 * scale


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_core_outputs_and_gradients_match_torch(shape, activation, layer_norm):
    rows, inputs, hidden, outputs = shape
    torch.manual_seed(1)
    network = make(inputs, outputs, hidden_dims=hidden, activation=activation, layer_norm=layer_norm)
    seen, weight = torch.randn(rows, inputs), torch.randn(rows, outputs)
    theirs = outputs_and_gradients(network, seen, weight)
    assert compute_natively(network)
    assert_close(outputs_and_gradients(network, seen, weight), theirs)


def test_core_gradients_of_noisy_layers_match_torch():
    torch.manual_seed(1)
    network = make(6, 3, hidden_dims=[16], noisy=True)
    resample_noise(network, np.random.default_rng(1))
    seen, weight = torch.randn(9, 6), torch.randn(9, 3)
    theirs = outputs_and_gradients(network, seen, weight)
    assert compute_natively(network)
    ours = outputs_and_gradients(network, seen, weight)
    assert_close(ours, theirs)
    assert len(ours) == 2 + 8  # weight and bias with a sigma each, in both layers


def test_core_gradients_of_two_forward_passes_match_torch():
    torch.manual_seed(1)
    network = make(4, 2, hidden_dims=[8])
    one, other = torch.randn(3, 4), torch.randn(5, 4)

    def gradients() -> list[Tensor]:
        network.zero_grad()
        outputs = network({"state": one}), network({"state": other})
        (outputs[0].square().sum() - outputs[1].square().sum()).backward()
        return [p.grad.clone() for p in network.parameters() if p.grad is not None]

    theirs = gradients()
    compute_natively(network)
    assert_close(gradients(), theirs)


def test_core_backward_can_run_twice():
    ours, theirs, rows = make(6, 3, hidden_dims=[8]), make(6, 3, hidden_dims=[8]), torch.randn(20, 6)
    theirs.load_state_dict(ours.state_dict())
    assert compute_natively(ours)
    found = []
    for network in (ours, theirs):
        network.zero_grad()
        outputs = network({"state": rows})
        outputs.sum().backward(retain_graph=True)
        network({"state": rows[:3]}).sum().backward()
        (outputs**2).sum().backward()
        one, other = network({"state": rows}), network({"state": rows[:7]})
        one.sum().backward()
        other.sum().backward()
        found.append([parameter.grad for parameter in network.parameters()])
    assert_close(*found)


def test_input_gradients_pass_through_frozen_weights():
    torch.manual_seed(1)
    network = make(4, 2, hidden_dims=[8])
    compute_natively(network)
    network.requires_grad_(False)
    rows = torch.randn(3, 4, requires_grad=True)
    network({"state": rows}).sum().backward()
    assert rows.grad is not None
    assert float(rows.grad.abs().sum()) > 0
    assert all(parameter.grad is None for parameter in network.parameters())


def test_unsupported_activation_runs_in_torch():
    network = make(4, 2, hidden_dims=[8], activation="gelu")
    before = network({"state": torch.ones(1, 4)})
    assert not compute_natively(network)
    assert torch.equal(network({"state": torch.ones(1, 4)}), before)


def test_core_adam_with_clipping_matches_torch():
    torch.manual_seed(1)
    ours, theirs = make(5, 3, hidden_dims=[32]), make(5, 3, hidden_dims=[32])
    theirs.load_state_dict(ours.state_dict())
    core = CoreAdam([{"params": list(ours.parameters())}], lr=1e-2, eps=1e-8)
    plain = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-8)
    first = ours.output.weight.detach().clone()
    for step in range(30):
        rows = 5 * torch.randn(16, 5)
        norms = []
        for network, optimizer in ((ours, core), (theirs, plain)):
            optimizer.zero_grad()
            network({"state": rows}).square().mean().backward()
            norms.append(clipped_step(optimizer, 0.5))
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)
        if step == 15:  # loading moves the optimizer state to other addresses
            core.load_state_dict(core.state_dict())
    assert core.core_groups() is not None
    assert not torch.equal(first, ours.output.weight)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def stepped(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], wanted: list[list[int]]) -> list[Tensor]:
    """Take one step per list of parameter indices; only these parameters have a gradient."""
    for step, numbers in enumerate(wanted):
        optimizer.zero_grad()
        for n in numbers:
            parameters[n].grad = torch.full_like(parameters[n], 0.1 + step)
        clipped_step(optimizer, 1e9)
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("wanted", [[[0]] * 9 + [[0, 1]] * 3, [[0], [1], [0], [1]], [[0, 1], [0], [0, 1]]], ids=str)
def test_core_adam_updates_only_parameters_with_gradients(wanted):
    found = []
    for make_adam in (CoreAdam, torch.optim.Adam):
        parameters = [nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))]
        optimizer = make_adam([{"params": parameters}], lr=0.1, eps=1e-8)
        found.append(stepped(optimizer, parameters, wanted))
    assert_close(*found)


def test_core_adam_updates_parameters_with_moved_storage():
    parameter = nn.Parameter(torch.ones(5))
    optimizer = CoreAdam([{"params": [parameter]}], lr=0.1, eps=1e-8)
    stepped(optimizer, [parameter], [[0]])
    nn.utils.vector_to_parameters(torch.full((5,), 5.0), [parameter])
    [moved] = stepped(optimizer, [parameter], [[0]])
    assert float(moved.max()) < 5.0


def test_core_adam_skips_steps_with_non_finite_gradients():
    network = make(2, 1, hidden_dims=[4])
    optimizer = CoreAdam([{"params": list(network.parameters())}], lr=1e-2, eps=1e-8)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    (network({"state": torch.ones(1, 2)}).sum() * float("inf")).backward()
    assert not np.isfinite(clipped_step(optimizer, 1.0))
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def learner_config(algorithm: str, backend: str, **network: object) -> LearnerConfig:
    return LearnerConfig(
        algorithm=parse_algorithm({"name": algorithm}),
        networks=parse_networks({"critic": {"hidden_dims": [8], **network}}, algorithm),
        buffer=parse_buffer({}, algorithm),
        backend=backend,
        total_timesteps=1000,
    )


SPEC = Spec({"state": Box((4,))}, Discrete(2))


def test_native_backend_rejects_unsupported_networks():
    with pytest.raises(
        ConfigError,
        match=r"experiment.backend is 'native'.*fully connected layers with the activations tanh, relu, elu on",
    ):
        build_learner(SPEC, learner_config("dqn", "native", activation="gelu"), seed=1)
    build_learner(SPEC, learner_config("dqn", "auto", activation="gelu"), seed=1)


@pytest.mark.parametrize(("backend", "native"), [("auto", True), ("native", True), ("torch", False)])
def test_backend_setting_selects_the_implementation(backend, native):
    learner = build_learner(SPEC, learner_config("dqn", backend), seed=1)
    critic = learner.algorithm._critic
    assert (critic._core is not None) == native
