"""The numpy form and the native form of a program decide alike, and many rows decide as each alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.policy.draws import Draws
from rl4sys.policy.native_form import NATIVE, NativeProgram
from rl4sys.policy.numpy_form import NumpyProgram
from rl4sys.policy.program import ACTIVATIONS, DISCRETE_HEADS, HEADS, Operation, Program
from rl4sys.spec import Array

Form: TypeAlias = type[NumpyProgram] | type[NativeProgram]

WIDTHS = st.integers(1, 70)
LAYERS = st.lists(st.tuples(WIDTHS, st.sampled_from((*ACTIVATIONS, None))), max_size=4)
NEEDS_NATIVE = pytest.mark.skipif(not NATIVE, reason="the native core is not installed, or RL4SYS_NUMPY=1")


@dataclass(frozen=True)
class Case:
    program: Program
    weights: dict[str, Array]
    rows: Array
    mask: Array | None
    key: int

    @property
    def discrete(self) -> bool:
        return self.program.head.name in DISCRETE_HEADS

    def build(self, form: Form) -> NumpyProgram | NativeProgram:
        return form(self.program, self.weights, self.rows.shape[1])


PAIRED_HEADS = ("squashed_gaussian", "squashed_mode", "uniform")
BOUNDED_OPTIONS: dict[str, dict[str, float]] = {
    "squashed_gaussian": {"log_std_min": -2.0, "log_std_max": 0.5},
    "squashed_mode": {},
    "noisy_squash": {"sigma": 0.3},
    "squash": {},
    "uniform": {"parameters": 2},
}


class Builder:
    """Adds operations with random weights of a scale that keeps values near 1."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = np.random.default_rng(seed)
        self.size = size
        self.weights: dict[str, Array] = {}
        self.body: list[Operation] = []

    def array(self, *shape: int, scale: float = 1.0) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (scale * self.random.standard_normal(shape)).astype(np.float32)
        return name

    def normalize(self) -> None:
        names = self.array(self.size), self.array(self.size)
        self.body.append(Operation("normalize", names, {"limit": 2.0}))

    def layer(self, width: int, activation: str | None) -> None:
        names = self.array(width, self.size, scale=self.size**-0.5), self.array(width, scale=0.5)
        self.body.append(Operation("linear", names))
        self.size = width
        if activation is not None:
            self.body.append(Operation(activation))

    def head(self, name: str) -> Operation:
        if name == "gaussian":
            return Operation(name, (self.array(self.size, scale=0.5),))
        if name in BOUNDED_OPTIONS:
            size = self.size // (2 if name in PAIRED_HEADS else 1)
            low, high = self.array(size), self.array(size)
            self.weights[high] = self.weights[low] + 1.0 + np.abs(self.weights[high])
            return Operation(name, (low, high), BOUNDED_OPTIONS[name])
        return Operation(name, (), {"epsilon": 0.3} if name == "epsilon_greedy" else {})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    head, layers = draw(st.sampled_from(HEADS)), draw(LAYERS)
    builder = Builder(draw(st.integers(0, 2**32 - 1)), draw(WIDTHS))
    rows = builder.random.standard_normal((draw(st.integers(1, 17)), builder.size)).astype(np.float32)
    if draw(st.booleans()):
        builder.normalize()
    for width, activation in layers:
        builder.layer(width, activation)
    if head in PAIRED_HEADS and builder.size % 2:
        builder.layer(builder.size + 1, None)
    program = Program(tuple(builder.body), builder.head(head))
    masked = head in DISCRETE_HEADS and draw(st.booleans())
    mask = _random_mask(builder.random, (len(rows), builder.size)) if masked else None
    return Case(program, builder.weights, rows, mask, draw(st.integers(0, 2**64 - 1)))


def _random_mask(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    mask: Array = random.random(shape) < 0.4
    mask[np.arange(shape[0]), random.integers(shape[1], size=shape[0])] = True
    return mask


def _scale(case: Case) -> float:
    """The largest number met on the way: float32 keeps seven digits of that, whatever it is reduced to later."""
    scale = 1.0
    for length in range(len(case.program.body) + 1):
        part = Program(case.program.body[:length], Operation("mode"))
        reached = NumpyProgram(part, case.weights, case.rows.shape[1]).forward(case.rows)
        scale = max(scale, float(np.abs(reached).max()))
    return scale


@NEEDS_NATIVE
@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_both_forms_compute_the_same_numbers(case: Case) -> None:
    expected, got = (case.build(form).forward(case.rows) for form in (NumpyProgram, NativeProgram))
    assert expected.dtype == got.dtype == np.float32
    assert expected.shape == got.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * _scale(case))


@NEEDS_NATIVE
@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_both_forms_decide_alike_from_the_same_draws(case: Case) -> None:
    streams = Draws(case.key), Draws(case.key)
    numpy_form, native_form = case.build(NumpyProgram), case.build(NativeProgram)
    expected, expected_log = numpy_form.act(case.rows, case.mask, streams[0])
    got, got_log = native_form.act(case.rows, case.mask, streams[1])
    assert streams[0].state() == streams[1].state()
    assert (expected.dtype, expected.shape, expected_log.dtype) == (got.dtype, got.shape, got_log.dtype)
    outputs = numpy_form.forward(case.rows)
    tolerance = 1e-6 * _scale(case)
    same = np.ones(len(case.rows), np.bool_)
    if case.discrete:
        same = got == expected
        for row in np.flatnonzero(~same):
            assert _margin(case, outputs, int(row), int(expected[row]), int(got[row])) < 10 * tolerance
    else:
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * _stretch(case))
    np.testing.assert_allclose(got_log[same], expected_log[same], rtol=0, atol=tolerance * max(2, outputs.shape[1]))


def _stretch(case: Case) -> float:
    """How much a head enlarges an error of its input."""
    spans = [case.weights[name] for name in case.program.head.weights]
    return max(1.0, *(float(np.abs(span).max()) for span in spans)) * 2.0 if spans else 1.0


def _margin(case: Case, outputs: Array, row: int, one: int, other: int) -> float:
    """How far the head's input or draw was from where the choice between two actions turns."""
    if case.program.head.name != "categorical":
        return abs(float(outputs[row, one]) - float(outputs[row, other]))
    legal = np.ones(outputs.shape[1], np.bool_) if case.mask is None else case.mask[row]
    weight = np.where(legal, np.exp(outputs[row].astype(np.float64) - outputs[row].max()), 0.0)
    uniform = Draws(case.key, row).uniforms(1)[0]
    return float(np.abs(np.cumsum(weight) / weight.sum() - uniform).min())


@settings(max_examples=150, deadline=None)
@given(case=cases())
@pytest.mark.parametrize("form", [NumpyProgram, pytest.param(NativeProgram, marks=NEEDS_NATIVE)])
def test_many_rows_give_bit_for_bit_what_each_gives_alone(form: Form, case: Case) -> None:
    program, together, alone = case.build(form), Draws(case.key), Draws(case.key)
    actions, log_probs = program.act(case.rows, case.mask, together)
    for row in range(len(case.rows)):
        mask = None if case.mask is None else case.mask[row]
        action, log_prob = program.decide(case.rows[row], mask, alone)
        assert np.asarray(action).tobytes() == actions[row].tobytes()
        assert np.float32(log_prob) == log_probs[row]
        assert isinstance(log_prob, float)
        assert isinstance(action, int) == case.discrete
    assert together.state() == alone.state()


@settings(max_examples=100, deadline=None)
@given(case=cases(), place=st.integers(0, 10**6))
@pytest.mark.parametrize("form", [NumpyProgram, pytest.param(NativeProgram, marks=NEEDS_NATIVE)])
def test_a_nan_gives_a_legal_action_and_a_nan_log_probability(form: Form, case: Case, place: int) -> None:
    rows = case.rows.copy()
    rows.flat[place % rows.size] = np.nan
    program, draws = case.build(form), Draws(case.key)
    spoilt = np.isnan(program.forward(rows)).any(axis=1)
    actions, log_probs = program.act(rows, case.mask, draws)
    assert spoilt.any()
    assert np.isnan(log_probs).tolist() == spoilt.tolist()
    if case.discrete:
        first = np.zeros(len(rows), np.int64) if case.mask is None else case.mask.argmax(axis=1)
        assert actions[spoilt].tolist() == first[spoilt].tolist()
