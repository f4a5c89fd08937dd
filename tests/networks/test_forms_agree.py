"""Every network gives the same outputs in torch and as an exported program in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.config import parse
from rl4sys.networks.base import (
    Blueprint,
    NetworkConfig,
    Recurrent,
    action_outputs,
    build_network,
    count_parameters,
    memory_size,
)
from rl4sys.networks.chained import Chained, head_spec
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.noisy import resample_noise, without_noise
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.policy.snapshot_policy import flat_rows
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Array, Box, Columns, Discrete, MultiDiscrete, Spec, mask_box

FLAT = Spec({"state": Box((5,))}, Discrete(3))
BOXES = Spec({"b": Box((2, 3)), "a": Box((4,), "float64")}, Box((2,)))
SMALL_IMAGE = Spec({"pixels": Box((9, 7, 3), "uint8")}, Discrete(4))
FRAMES = Spec({"frames": Box((2, 44, 36), "uint8"), "speed": Box((2,)), "angle": Box((1,))}, Box((3,)))
TWO_IMAGES = Spec({"left": Box((3, 8, 9)), "right": Box((10, 8, 2), "uint8")}, Discrete(2))
JOBS = Spec({"jobs": Box((6, 4)), "load": Box((2,)), "mask": Box((6,), "bool")}, Discrete(6))
JOBS_OR_WAIT = Spec({"jobs": Box((6, 4)), "a_clock": Box((1,)), "mask": Box((8,), "bool")}, Discrete(8))
JOB_AND_NODE = Spec({"jobs": Box((6, 4)), "mask": mask_box(MultiDiscrete((6, 3)))}, MultiDiscrete((6, 3)))
BINARY_ACTIONS = Spec({"jobs": Box((6, 4)), "mask": mask_box(MultiDiscrete((2,) * 6))}, MultiDiscrete((2,) * 6))
PLAIN_JOBS = Spec({"jobs": Box((6, 4))}, Discrete(6))
HISTORY = Spec({"history": Box((7, 3)), "now": Box((2,))}, Box((2,)))

CASES: dict[str, tuple[Spec, dict[str, Any]]] = {
    "mlp": (FLAT, {"type": "mlp"}),
    "mlp_norm": (BOXES, {"type": "mlp", "layer_norm": True, "hidden_dims": [7, 6], "activation": "silu"}),
    "mlp_linear": (BOXES, {"type": "mlp", "hidden_dims": []}),
    "mlp_noisy": (FLAT, {"type": "mlp", "noisy": True, "hidden_dims": [8]}),
    "cnn_nature": (FRAMES, {"type": "cnn", "hidden_dims": [16]}),
    "cnn_impala": (SMALL_IMAGE, {"type": "cnn", "architecture": "impala", "hidden_dims": []}),
    "cnn_channels": (TWO_IMAGES, {"type": "cnn", "architecture": "impala", "hidden_dims": [9], "layer_norm": True}),
    "cnn_first": (SMALL_IMAGE, {"type": "cnn", "architecture": "impala", "channels": "first", "hidden_dims": [5]}),
    "gru": (FLAT, {"type": "gru", "hidden_dims": [6], "hidden_size": 5}),
    "gru_bare": (BOXES, {"type": "gru", "hidden_dims": [], "hidden_size": 3, "initialization": "uniform"}),
    "lstm": (BOXES, {"type": "lstm", "hidden_dims": [6], "hidden_size": 5, "layer_norm": True}),
    "lstm_masked": (JOBS, {"type": "lstm", "hidden_size": 8, "initialization": "uniform"}),
    "transformer": (HISTORY, {"type": "transformer", "width": 8, "heads": 2, "layers": 2}),
    "transformer_set": (PLAIN_JOBS, {"type": "transformer", "width": 6, "heads": 3, "positions": False}),
    "transformer_named": (BOXES, {"type": "transformer", "observation": "b", "width": 4, "heads": 1, "layers": 1}),
    "items": (JOBS, {"type": "items"}),
    "items_plain": (PLAIN_JOBS, {"type": "items", "hidden_dims": [8], "attention_heads": 2}),
    "items_attention": (JOBS, {"type": "items", "hidden_dims": [8], "attention_heads": 4}),
    "items_and_wait": (JOBS_OR_WAIT, {"type": "items", "hidden_dims": [8, 6], "attention_heads": 3}),
    "items_and_node": (JOB_AND_NODE, {"type": "items", "hidden_dims": [8], "attention_heads": 2}),
    "items_binary": (BINARY_ACTIONS, {"type": "items", "hidden_dims": [8], "attention_heads": 2}),
    "items_pooled": (HISTORY, {"type": "items", "hidden_dims": [8]}),
    "dict": (
        FRAMES,
        {"type": "dict", "encoders": {"frames": {"type": "cnn", "hidden_dims": [8]}, "speed": {"type": "mlp"}}},
    ),
    "dict_items": (
        JOBS,
        {"type": "dict", "encoders": {"jobs": {"type": "items", "attention_heads": 2}}, "encoder_outputs": 5},
    ),
    "dict_flat": (BOXES, {"type": "dict", "activation": "gelu"}),
}


def config_of(settings: dict[str, Any]) -> NetworkConfig:
    config: NetworkConfig = parse(NETWORKS.get(settings["type"]).Config, settings, "network.actor")
    return config


def needed(spec: Spec, outputs: int) -> Blueprint:
    return Blueprint(spec, outputs, allow_memory=True)


def perturbed(network: nn.Module, seed: int = 0) -> nn.Module:
    """Add noise to every weight, because initial biases of 0 and scales of 1 could hide errors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    return network


def built(case: str) -> tuple[Spec, nn.Module]:
    spec, settings = CASES[case]
    return spec, perturbed(build_network(config_of(settings), needed(spec, action_outputs(spec)), seed=1))


def observations(spec: Spec, rows: int, seed: int = 0) -> dict[str, Array]:
    random, columns = np.random.default_rng(seed), {}
    for name, box in spec.observation.items():
        values = random.standard_normal((rows, *box.shape))
        columns[name] = random.integers(0, 256, values.shape) if box.dtype == "uint8" else values
        columns[name] = columns[name].astype(box.dtype)
    if spec.masked:
        columns[MASK] = random.random((rows, *spec.observation[MASK].shape)) < 0.5
        columns[MASK][:, -1] = True
        # In the first row only the last action is legal.
        columns[MASK][0, :-1] = False
        if isinstance(spec.action, MultiDiscrete):
            columns[MASK][:, np.cumsum(spec.action.choices) - 1] = True
    return columns


def snapshot_of(spec: Spec, network: nn.Module) -> Snapshot:
    if isinstance(spec.action, Discrete):
        return TorchPolicy(spec, network, Operation("categorical")).snapshot(0)
    if isinstance(spec.action, MultiDiscrete):
        weights = {"choices": np.array(spec.action.choices, np.float32)}
        return TorchPolicy(spec, network, Operation("multi_categorical", ("choices",)), weights).snapshot(0)
    head, weights = Operation("gaussian", ("log_std",)), {"log_std": np.zeros(spec.action.size, np.float32)}
    return TorchPolicy(spec, network, head, weights).snapshot(0)


class Outputs:
    """Runs the body of an exported network, to compare the inputs of the head."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._size = input_size(snapshot.spec)
        self.program = NumpyProgram(snapshot.program, snapshot.weights, self._size)

    def of(self, observation: Columns, memory: Array | None = None) -> Array:
        """Return the head input of each row; updates ``memory`` in place."""
        names = tuple(name for name in self._snapshot.spec.observation if name != MASK)
        rows = flat_rows(observation, names)
        legal = observation.get(MASK, np.ones((len(rows), self.program.output_size), np.bool_))
        held = np.zeros((len(rows), self.program.memory_size), np.float32) if memory is None else memory
        outputs, after = self.program._body(rows, legal, Draws(0), held)
        held[:] = after
        return outputs


def close(got: Any, expected: Any) -> None:
    expected, got = (np.asarray(x.detach() if isinstance(x, torch.Tensor) else x) for x in (expected, got))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("case", CASES)
def test_exported_program_matches_torch(case: str) -> None:
    spec, network = built(case)
    columns = observations(spec, rows=9)
    with torch.no_grad():
        expected = network(to_tensors(columns, torch.device("cpu")))
    snapshot = Snapshot.from_bytes(snapshot_of(spec, network).to_bytes())
    assert expected.shape == (9, action_outputs(spec))
    close(Outputs(snapshot).of(columns), expected)
    assert float(expected.std(0).max()) > 1e-3, "outputs should depend on the observation"


@pytest.mark.parametrize("case", CASES)
def test_exported_program_and_torch_policy_draw_the_same_actions(case: str) -> None:
    spec, network = built(case)
    columns = observations(spec, rows=5, seed=3)
    snapshot = snapshot_of(spec, network)
    program = NumpyProgram(snapshot.program, snapshot.weights, input_size(spec))
    policy = TorchPolicy(spec, network, snapshot.program.head, snapshot.weights)
    decision = policy.act(columns, {}, Draws(7))
    names = tuple(name for name in spec.observation if name != MASK)
    memory = np.zeros((5, program.memory_size), np.float32)
    actions, log_probs = program.act(flat_rows(columns, names), columns.get(MASK), Draws(7), memory)
    close(actions.reshape(decision.action.shape), decision.action)
    close(log_probs, decision.log_prob)


def test_greedy_policy_disables_noisy_layers() -> None:
    spec, network = built("mlp_noisy")
    resample_noise(network, np.random.default_rng(2))
    columns = observations(spec, rows=9)
    seen = to_tensors(columns, torch.device("cpu"))
    with torch.no_grad():
        noisy = network(seen)
        with without_noise(network):
            plain = network(seen)
    assert float((noisy - plain).abs().max()) > 1e-2
    live, snapshot = TorchPolicy(spec, network, Operation("categorical")), snapshot_of(spec, network)
    close(Outputs(snapshot).of(columns), noisy)
    for greedy in (snapshot.greedy(), live.greedy().snapshot(0)):
        close(Outputs(greedy).of(columns), plain)
    assert live.greedy().act(columns, {}, Draws(1)).action.tolist() == plain.argmax(1).tolist()
    with torch.no_grad():
        close(network(seen), noisy)


@pytest.mark.parametrize("case", CASES)
def test_parameter_count_matches_the_built_network(case: str) -> None:
    spec, settings = CASES[case]
    blueprint = needed(spec, action_outputs(spec))
    network = build_network(config_of(settings), blueprint, seed=0)
    assert count_parameters(config_of(settings), blueprint) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_a_critic_are_finite_for_all_parameters(case: str) -> None:
    spec, settings = CASES[case]
    network = perturbed(build_network(config_of(settings), needed(spec, 1), seed=0))
    values = network(to_tensors(observations(spec, rows=4), torch.device("cpu")))
    assert values.shape == (4, 1)
    values.sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters()}
    assert all(g is not None and torch.isfinite(g).all() for g in gradients.values())


@pytest.mark.parametrize("case", CASES)
def test_initial_weights_depend_on_the_seed_alone(case: str) -> None:
    spec, settings = CASES[case]
    networks = [build_network(config_of(settings), needed(spec, 1), seed) for seed in (1, 1, 2)]
    one, again, other = (torch.cat([p.flatten() for p in network.parameters()]) for network in networks)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


RECURRENT = [case for case in CASES if case.startswith(("gru", "lstm"))]


def windows(spec: Spec, batch: int, length: int) -> dict[str, Array]:
    flat = observations(spec, batch * length, seed=5)
    return {name: column.reshape(batch, length, *column.shape[1:]) for name, column in flat.items()}


@pytest.mark.parametrize("case", RECURRENT)
def test_sequence_outputs_match_single_steps_and_exported_program(case: str) -> None:
    spec, network = built(case)
    assert isinstance(network, Recurrent)
    columns, random = windows(spec, batch=3, length=25), np.random.default_rng(0)
    start = (0.3 * random.standard_normal((3, network.memory_size))).astype(np.float32)
    tensors = to_tensors(columns, torch.device("cpu"))
    with torch.no_grad():
        whole = network.sequence(tensors, torch.from_numpy(start))
        memory, held = torch.from_numpy(start), start.copy()
        outputs = Outputs(snapshot_of(spec, network))
        for step in range(25):
            expected, memory = network.step({name: column[:, step] for name, column in tensors.items()}, memory)
            close(whole[:, step], expected)
            close(outputs.of({name: column[:, step] for name, column in columns.items()}, held), expected)
            close(held, memory)
        assert float((whole - network.sequence(tensors, torch.zeros(3, network.memory_size))).abs().max()) > 1e-4


@pytest.mark.parametrize("case", RECURRENT)
def test_forward_starts_from_a_zero_recurrent_state(case: str) -> None:
    spec, network = built(case)
    assert isinstance(network, Recurrent)
    tensors = to_tensors(observations(spec, rows=4), torch.device("cpu"))
    with torch.no_grad():
        close(network(tensors), network.step(tensors, torch.zeros(4, network.memory_size))[0])
    assert network.memory_size == memory_size(network) == snapshot_of(spec, network).memory_size > 0


def head(width: int, spec: Spec) -> nn.Module:
    config = config_of({"type": "mlp", "hidden_dims": [5]})
    return perturbed(build_network(config, Blueprint(head_spec(width, spec.action), action_outputs(spec)), 3))


@pytest.mark.parametrize("case", ["mlp", "cnn_nature", "gru", "lstm_masked", "items_attention", "dict"])
def test_trunk_and_head_are_exported_as_one_program(case: str) -> None:
    spec, settings = CASES[case]
    trunk = perturbed(build_network(config_of(settings), needed(spec, 12), 2))
    chain = Chained(trunk, head(12, spec))
    columns = observations(spec, rows=6)
    with torch.no_grad():
        expected = chain(to_tensors(columns, torch.device("cpu")))
    close(Outputs(snapshot_of(spec, chain)).of(columns), expected)
    assert memory_size(chain) == memory_size(trunk)


@pytest.mark.parametrize("case", ["gru", "mlp"])
def test_sequence_outputs_of_chained_network_match_single_steps(case: str) -> None:
    spec, settings = CASES[case]
    chain = Chained(perturbed(build_network(config_of(settings), needed(spec, 12), 2)), head(12, spec))
    tensors = to_tensors(windows(spec, batch=2, length=6), torch.device("cpu"))
    memory = torch.zeros(2, chain.memory_size)
    with torch.no_grad():
        whole = chain.sequence(tensors, memory)
        for step in range(6):
            expected, memory = chain.step({name: column[:, step] for name, column in tensors.items()}, memory)
            close(whole[:, step], expected)


def test_exported_dueling_transformer_matches_torch() -> None:
    spec, settings = CASES["transformer_set"]
    network = Dueling(perturbed(build_network(config_of(settings), Blueprint(spec, 7), 0)), 6)
    columns = observations(spec, rows=3)
    with torch.no_grad():
        close(Outputs(snapshot_of(spec, network)).of(columns), network(to_tensors(columns, torch.device("cpu"))))


def test_cases_include_every_builtin_network() -> None:
    assert {settings["type"] for _, settings in CASES.values()} >= set(NETWORKS._shipped)
    assert {name: NETWORKS.get(name).Config().type for name in NETWORKS._shipped} == {n: n for n in NETWORKS._shipped}
