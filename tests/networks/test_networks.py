"""Behavior specific to each network type, and errors for invalid options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import Blueprint, build_network, count_parameters, export
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.networks.chained import Chained
from rl4sys.networks.mlp import MLPConfig
from rl4sys.networks.noisy import resample_noise, without_noise
from rl4sys.networks.state import module_state, restore_module
from rl4sys.networks.torch_policy import to_tensors
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import ROW, Operation, Program
from rl4sys.spec import Box, Discrete, Spec
from tests.networks.test_forms_agree import (
    CASES,
    FLAT,
    FRAMES,
    JOBS,
    SMALL_IMAGE,
    built,
    config_of,
    needed,
    observations,
)

CPU = torch.device("cpu")


def network(spec: Spec, outputs: int = 2, **settings: Any) -> nn.Module:
    return build_network(config_of(settings), needed(spec, outputs), seed=0)


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        (FLAT, {"type": "cnn"}, r"type cnn needs an image .* the observations are state with shape \(5,\); use mlp"),
        (
            SMALL_IMAGE,
            {"type": "cnn"},
            "'pixels' is an image of 9 x 7, .* 'nature' needs at least 36 x 36; use .* impala",
        ),
        (FRAMES, {"type": "cnn", "channels": "last"}, "'frames' is an image of 2 x 44"),
        (
            FLAT,
            {"type": "transformer"},
            r"transformer needs one observation with 2 axes.* are state with shape \(5,\); use mlp",
        ),
        (
            FLAT,
            {"type": "items", "observation": "state"},
            "observation is 'state', but .* items needs .*; observations with 2 axes: none",
        ),
        (
            Spec({"a": Box((2, 3)), "b": Box((2, 3))}, Discrete(2)),
            {"type": "items"},
            "needs one observation with 2 axes.* select one with the option `observation`",
        ),
        (
            JOBS,
            {"type": "items", "hidden_dims": [7], "attention_heads": 2},
            "the network width is 7; expected a multiple",
        ),
        (
            JOBS,
            {"type": "transformer", "width": 10},
            "the network width is 10; expected a multiple of the number of attention",
        ),
        (FLAT, {"type": "dict", "encoders": {"stat": {}}}, "encoders.stat is not an observation; did you mean state"),
        (
            FLAT,
            {"type": "dict", "encoders": {"state": {"type": "gru"}}},
            "encoders.state is a gru, but an encoder cannot be recurrent",
        ),
        (FLAT, {"type": "dict", "encoders": {"state": {"type": "mpl"}}}, "no network is named 'mpl'; did you mean mlp"),
        (FLAT, {"type": "dict", "encoders": {"state": {"width": 1}}}, "encoders.state.width is not a setting"),
        (FLAT, {"type": "dict", "encoders": {"state": 3}}, "encoders.state is 3; expected a block"),
        (FLAT, {"type": "dict", "encoders": [1]}, "expected a block with a network for each observation"),
        (FLAT, {"type": "gru", "hidden_size": 0}, "network.actor.hidden_size"),
    ],
)
def test_invalid_network_settings_are_rejected(spec: Spec, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network(spec, **settings)


def test_uint8_images_are_scaled_and_the_channel_axis_is_detected() -> None:
    columns = observations(SMALL_IMAGE, rows=2)
    settings: dict[str, Any] = {"type": "cnn", "architecture": "impala", "hidden_dims": [4]}
    floats = Spec({"pixels": Box((9, 7, 3))}, Discrete(4))
    first = Spec({"pixels": Box((3, 9, 7))}, Discrete(4))
    scaled = (columns["pixels"] / 255).astype(np.float32)
    expected = network(SMALL_IMAGE, **settings)(to_tensors(columns, CPU))
    torch.testing.assert_close(network(floats, **settings)(to_tensors({"pixels": scaled}, CPU)), expected)
    moved = {"pixels": np.ascontiguousarray(np.moveaxis(scaled, 3, 1))}
    torch.testing.assert_close(network(first, **settings)(to_tensors(moved, CPU)), expected)


@pytest.mark.parametrize("case", ["items", "items_attention", "items_and_wait", "items_and_node"])
def test_item_scores_are_permutation_equivariant(case: str) -> None:
    spec, net = built(case)
    columns = observations(spec, rows=5)
    order = np.array([3, 0, 5, 1, 4, 2])
    rest = np.arange(6, spec.observation["mask"].size)
    swapped = columns | {"jobs": columns["jobs"][:, order], "mask": columns["mask"][:, [*order, *rest]]}
    before, after = (net(to_tensors(c, CPU)) for c in (columns, swapped))
    torch.testing.assert_close(after, before[:, [*order, *rest]])


def test_pooled_outputs_are_independent_of_the_item_order() -> None:
    """Six binary actions: neither the outputs nor the mask have one element per item, so all outputs use the pool."""
    spec, net = built("items_binary")
    columns = observations(spec, rows=4)
    outputs = net(to_tensors(columns, CPU))
    moved = columns | {"jobs": columns["jobs"][:, ::-1].copy(), "mask": ~columns["mask"]}
    torch.testing.assert_close(net(to_tensors(moved, CPU)), outputs)


def test_masked_items_do_not_affect_outputs() -> None:
    spec, net = built("items_and_wait")
    columns = observations(spec, rows=1)
    columns["mask"][:] = [True, True, False, False, True, True, True, True]
    other = columns["jobs"].copy()
    other[0, [2, 3]] += 100
    legal = [0, 1, 4, 5, 6, 7]
    before, after = (net(to_tensors(columns | {"jobs": jobs}, CPU))[0, legal] for jobs in (columns["jobs"], other))
    torch.testing.assert_close(after, before)
    other[0, 0] += 1
    assert not torch.allclose(net(to_tensors(columns | {"jobs": other}, CPU))[0, legal], before)


def test_position_embeddings_distinguish_rows() -> None:
    settings: dict[str, Any] = {"type": "transformer", "width": 8, "heads": 2}
    columns = {**observations(CASES["items_plain"][0], rows=3)}
    reversed_rows = {"jobs": columns["jobs"][:, ::-1].copy()}
    for positions, equal in ((True, False), (False, True)):
        net = network(CASES["items_plain"][0], positions=positions, **settings)
        with torch.no_grad():
            one, other = (net(to_tensors(c, CPU)) for c in (columns, reversed_rows))
        assert torch.allclose(one, other, atol=1e-5) == equal


def noisy() -> nn.Module:
    return network(FLAT, 3, type="mlp", noisy=True, hidden_dims=[8], activation="relu")


def test_noisy_layers_draw_factorized_noise_from_the_given_generator() -> None:
    one, other, plain = noisy(), noisy(), network(FLAT, 3, type="mlp", hidden_dims=[8], activation="relu")
    seen = to_tensors(observations(FLAT, rows=4), CPU)
    state = torch.get_rng_state()
    with torch.no_grad():
        noiseless = one(seen)
        resample_noise(one, np.random.default_rng(1))
        resample_noise(other, np.random.default_rng(1))
        assert torch.equal(one(seen), other(seen))
        assert not torch.allclose(one(seen), noiseless)
        with without_noise(one):
            assert torch.equal(one(seen), noiseless)
        assert not torch.allclose(one(seen), noiseless)
        layer: Any = one.output
        drawn = np.random.default_rng(1).standard_normal(5 + 8 + 8 + 3).astype(np.float32)[-11:]
        factor = np.sign(drawn) * np.sqrt(np.abs(drawn))
        expected = layer.weight.numpy() + 0.5 / np.sqrt(8) * np.outer(factor[8:], factor[:8])
        np.testing.assert_allclose(layer.noisy()[0].numpy(), expected, rtol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert noiseless.shape == plain(seen).shape


def test_noise_of_noisy_layers_is_saved_and_restored() -> None:
    one, other = noisy(), noisy()
    resample_noise(one, np.random.default_rng(5))
    restore_module(other, module_state(one))
    seen = to_tensors(observations(FLAT, rows=4), CPU)
    assert torch.equal(one(seen), other(seen))


def test_mlp_weight_names_and_order_are_stable() -> None:
    body = export(build_network(MLPConfig(hidden_dims=[4, 3]), Blueprint(FLAT, 2), 0), "actor")
    assert [operation.name for operation in body.operations] == ["linear", "tanh", "linear", "tanh", "linear"]
    assert all(operation.inputs == () for operation in body.operations)
    assert list(body.weights) == [f"actor.{i}.{name}" for i in range(3) for name in ("weight", "bias")]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_network_is_rejected_by_single_step_algorithms(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"of type {kind} is recurrent, but this algorithm learns from single steps"):
        count_parameters(config_of({"type": kind}), Blueprint(FLAT, 2))


def test_included_network_accepts_any_earlier_value_as_input() -> None:
    inner = Body((Operation("scale", options={"factor": 3.0}), Operation("add", inputs=(0, 1))), {})
    writer = BodyWriter("p")
    first = writer.add("scale", ROW, factor=10.0)
    second = writer.add("scale", first, factor=10.0)
    writer.add("concat", writer.include(inner, ROW), writer.include(inner, first), second)
    program = NumpyProgram(Program(writer.body().operations, Operation("mode")), {}, 1)
    assert program.forward(np.ones((1, 1), np.float32)).tolist() == [[4, 40, 100]]


def test_recurrent_head_on_a_trunk_is_rejected() -> None:
    with pytest.raises(ConfigError, match="cannot be recurrent; use the gru or lstm network as the trunk"):
        Chained(network(FLAT, type="mlp"), network(FLAT, type="gru"))
