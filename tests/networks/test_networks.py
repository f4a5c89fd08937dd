"""What is particular to each network, and how mistakes in its options are explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl4sys.errors import ConfigError
from rl4sys.networks.acting import to_tensors
from rl4sys.networks.base import Blueprint, build_network, count_parameters, export
from rl4sys.networks.chained import Chained
from rl4sys.networks.mlp import MLPConfig
from rl4sys.networks.noisy import quiet, renew_noise
from rl4sys.networks.state import module_state, restore_module
from rl4sys.networks.writing import Body, BodyWriter
from rl4sys.policy.numpy_form import NumpyProgram
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
    ("spec", "settings", "says"),
    [
        (FLAT, {"type": "cnn"}, r"a cnn needs an observation with 3 axes, an image; there is state of \(5,\). Use mlp"),
        (SMALL_IMAGE, {"type": "cnn"}, "pixels is an image of 9 x 7, .* nature needs 36 x 36 at least; use .* impala"),
        (FRAMES, {"type": "cnn", "channels": "last"}, "frames is an image of 2 x 44"),
        (FLAT, {"type": "transformer"}, r"transformer needs one observation with 2 axes.* there is state of \(5,\)"),
        (FLAT, {"type": "items", "observation": "state"}, "observation is 'state'; a network of type items takes one"),
        (
            Spec({"a": Box((2, 3)), "b": Box((2, 3))}, Discrete(2)),
            {"type": "items"},
            "needs one observation with 2 axes.* Name one as `observation`",
        ),
        (JOBS, {"type": "items", "hidden_dims": [7], "attention_heads": 2}, "2 attention heads cannot share .* of 7"),
        (JOBS, {"type": "transformer", "width": 10}, "4 attention heads cannot share a width of 10"),
        (FLAT, {"type": "dict", "encoders": {"stat": {}}}, "encoders.stat is not an observation; did you mean state"),
        (FLAT, {"type": "dict", "encoders": {"state": {"type": "gru"}}}, "encoders.state is a gru, which remembers"),
        (FLAT, {"type": "dict", "encoders": {"state": {"type": "mpl"}}}, "no network is named 'mpl'; did you mean mlp"),
        (FLAT, {"type": "dict", "encoders": {"state": {"width": 1}}}, "encoders.state.width is not a setting"),
        (FLAT, {"type": "dict", "encoders": {"state": 3}}, "encoders.state is 3; it should be a block"),
        (FLAT, {"type": "dict", "encoders": [1]}, "it should be a block with a network for each observation"),
        (FLAT, {"type": "gru", "hidden_size": 0}, "network.actor.hidden_size"),
    ],
)
def test_a_network_that_does_not_fit_is_explained(spec: Spec, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        network(spec, **settings)


def test_images_of_bytes_are_scaled_and_their_channels_found() -> None:
    columns = observations(SMALL_IMAGE, rows=2)
    settings: dict[str, Any] = {"type": "cnn", "architecture": "impala", "hidden_dims": [4]}
    floats = Spec({"pixels": Box((9, 7, 3))}, Discrete(4))
    first = Spec({"pixels": Box((3, 9, 7))}, Discrete(4))
    scaled = (columns["pixels"] / 255).astype(np.float32)
    expected = network(SMALL_IMAGE, **settings)(to_tensors(columns, CPU))
    torch.testing.assert_close(network(floats, **settings)(to_tensors({"pixels": scaled}, CPU)), expected)
    moved = {"pixels": np.ascontiguousarray(np.moveaxis(scaled, 3, 1))}
    torch.testing.assert_close(network(first, **settings)(to_tensors(moved, CPU)), expected)


@pytest.mark.parametrize("case", ["items", "items_attention", "items_and_wait", "items_and_place"])
def test_items_that_change_places_change_their_scores_places_and_nothing_else(case: str) -> None:
    spec, net = built(case)
    columns = observations(spec, rows=5)
    order = np.array([3, 0, 5, 1, 4, 2])
    rest = np.arange(6, spec.observation["mask"].size)
    swapped = columns | {"jobs": columns["jobs"][:, order], "mask": columns["mask"][:, [*order, *rest]]}
    before, after = (net(to_tensors(c, CPU)) for c in (columns, swapped))
    torch.testing.assert_close(after, before[:, [*order, *rest]])


def test_choices_that_are_not_among_items_say_nothing_of_them() -> None:
    """Of six switches neither the outputs nor the mask have a number for each item."""
    spec, net = built("items_switched")
    columns = observations(spec, rows=4)
    outputs = net(to_tensors(columns, CPU))
    moved = columns | {"jobs": columns["jobs"][:, ::-1].copy(), "mask": ~columns["mask"]}
    torch.testing.assert_close(net(to_tensors(moved, CPU)), outputs)


def test_illegal_items_take_no_part() -> None:
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


def test_positions_tell_rows_apart() -> None:
    settings: dict[str, Any] = {"type": "transformer", "width": 8, "heads": 2}
    columns = {**observations(CASES["items_plain"][0], rows=3)}
    turned = {"jobs": columns["jobs"][:, ::-1].copy()}
    for positions, alike in ((True, False), (False, True)):
        net = network(CASES["items_plain"][0], positions=positions, **settings)
        with torch.no_grad():
            one, other = (net(to_tensors(c, CPU)) for c in (columns, turned))
        assert torch.allclose(one, other, atol=1e-5) == alike


def noisy() -> nn.Module:
    return network(FLAT, 3, type="mlp", noisy=True, hidden_dims=[8], activation="relu")


def test_noise_is_factorised_and_drawn_from_the_generator_given() -> None:
    one, other, plain = noisy(), noisy(), network(FLAT, 3, type="mlp", hidden_dims=[8], activation="relu")
    seen = to_tensors(observations(FLAT, rows=4), CPU)
    state = torch.get_rng_state()
    with torch.no_grad():
        silent = one(seen)
        renew_noise(one, np.random.default_rng(1))
        renew_noise(other, np.random.default_rng(1))
        assert torch.equal(one(seen), other(seen))
        assert not torch.allclose(one(seen), silent)
        with quiet(one):
            assert torch.equal(one(seen), silent)
        assert not torch.allclose(one(seen), silent)
        layer: Any = one.output
        drawn = np.random.default_rng(1).standard_normal(5 + 8 + 8 + 3).astype(np.float32)[-11:]
        factor = np.sign(drawn) * np.sqrt(np.abs(drawn))
        expected = layer.weight.numpy() + 0.5 / np.sqrt(8) * np.outer(factor[8:], factor[:8])
        np.testing.assert_allclose(layer.noisy()[0].numpy(), expected, rtol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert silent.shape == plain(seen).shape


def test_the_noise_of_now_is_saved_and_restored() -> None:
    one, other = noisy(), noisy()
    renew_noise(one, np.random.default_rng(5))
    restore_module(other, module_state(one))
    seen = to_tensors(observations(FLAT, rows=4), CPU)
    assert torch.equal(one(seen), other(seen))


def test_the_weights_of_an_mlp_are_named_and_ordered_as_ever() -> None:
    body = export(build_network(MLPConfig(hidden_dims=[4, 3]), Blueprint(FLAT, 2), 0), "actor")
    assert [operation.name for operation in body.operations] == ["linear", "tanh", "linear", "tanh", "linear"]
    assert all(operation.inputs == () for operation in body.operations)
    assert list(body.weights) == [f"actor.{i}.{name}" for i in range(3) for name in ("weight", "bias")]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_algorithm_that_learns_from_single_steps_is_not_given_a_network_that_remembers(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"of type {kind} remembers, and this algorithm learns from single steps"):
        count_parameters(config_of({"type": kind}), Blueprint(FLAT, 2))


def test_a_network_may_be_included_on_any_value_written_before() -> None:
    inner = Body((Operation("scale", options={"factor": 3.0}), Operation("add", inputs=(0, 1))), {})
    writer = BodyWriter("p")
    first = writer.add("scale", ROW, factor=10.0)
    second = writer.add("scale", first, factor=10.0)
    writer.add("concat", writer.include(inner, ROW), writer.include(inner, first), second)
    program = NumpyProgram(Program(writer.body().operations, Operation("mode")), {}, 1)
    assert program.forward(np.ones((1, 1), np.float32)).tolist() == [[4, 40, 100]]


def test_a_head_on_a_trunk_cannot_remember() -> None:
    with pytest.raises(ConfigError, match="cannot remember; put the gru or lstm in the trunk"):
        Chained(network(FLAT, type="mlp"), network(FLAT, type="gru"))
