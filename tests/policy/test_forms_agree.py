"""The numpy and the native form of a program agree, and a batch gives the results of its single rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rl4sys.policy.draws import Draws
from rl4sys.policy.native_program import NATIVE, NativeProgram
from rl4sys.policy.numpy_operations import OperationContext, apply
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import BODY, DISCRETE_HEADS, HEADS, MASK_NUMBERS, MULTI_HEADS, ROW, Operation, Program
from rl4sys.spec import Array, MultiDiscrete, first_allowed

Form: TypeAlias = type[NumpyProgram] | type[NativeProgram]

WIDTHS = st.integers(1, 70)
OPERATIONS = st.lists(st.sampled_from(BODY), max_size=6)
NEEDS_NATIVE = pytest.mark.skipif(not NATIVE, reason="the native core is not installed, or RL4SYS_NUMPY=1")


@dataclass(frozen=True)
class Case:
    program: Program
    weights: dict[str, Array]
    rows: Array
    mask: Array | None
    memory: Array
    key: int

    @property
    def discrete(self) -> bool:
        return self.program.head.name in DISCRETE_HEADS

    @property
    def multi_discrete(self) -> bool:
        return self.program.head.name in MULTI_HEADS

    @property
    def parts(self) -> tuple[int, ...]:
        return self.program.head.parts(self.program.output_size(self.rows.shape[1], self.weights), self.weights)

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
    """Builds a program of random operations, with random weights that keep values near 1."""

    def __init__(self, seed: int, size: int, actions: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes, self.actions = [size], actions
        self.weights: dict[str, Array] = {}
        self.body: list[Operation] = []
        self.memory_size = 0

    @property
    def size(self) -> int:
        return self.sizes[-1]

    def array(self, *shape: int, scale: float = 1.0) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (scale * self.random.standard_normal(shape)).astype(np.float32)
        return name

    def integer(self, most: int) -> int:
        return int(self.random.integers(1, most + 1))

    def earlier(self) -> int:
        """Return the number of a random earlier value."""
        return int(self.random.integers(len(self.sizes)))

    def add(self, name: str, gives: int, /, *weights: str, inputs: tuple[int, ...] = (), **options: float) -> int:
        """Add an operation with a result of size ``gives``; returns the number of the result."""
        self.body.append(Operation(name, weights, options, inputs))
        self.sizes.append(gives)
        return len(self.body)

    def layer(self, width: int, source: int | None = None, rows: int = 1) -> int:
        size = self.sizes[-1 if source is None else source] // rows
        names = self.array(width, size, scale=size**-0.5), self.array(width, scale=0.5)
        options = {"rows": rows} if rows > 1 else {}
        return self.add("linear", rows * width, *names, inputs=() if source is None else (source,), **options)

    def operation(self, name: str) -> None:
        """Add an operation by name, after a layer if it needs an input of a certain size."""
        special = getattr(self, f"_{name}", None)
        if special is None:
            self.add(name, self.size)
        else:
            special()

    def _normalize(self) -> None:
        self.add("normalize", self.size, self.array(self.size), self.array(self.size), limit=2.0)

    def _linear(self) -> None:
        rows = self.integer(9) if self.random.random() < 0.5 else 1
        if self.size % rows:
            self.layer(rows * self.integer(10))
        self.layer(self.integer(40 if rows > 1 else 70), rows=rows)

    def _noisy_linear(self) -> None:
        self._linear()
        operation = self.body[-1]
        noise = tuple(self.array(*self.weights[name].shape, scale=0.3) for name in operation.weights)
        self.body[-1] = replace(operation, name="noisy_linear", weights=operation.weights + noise)

    def _layer_norm(self) -> None:
        rows = self.integer(5)
        width = self.integer(20)
        self.layer(rows * width)
        # The large epsilon avoids amplified rounding errors of rows with little variance.
        self.add("layer_norm", rows * width, self.array(width), self.array(width), epsilon=0.3, rows=rows)

    def _scale(self) -> None:
        self.add("scale", self.size, factor=-0.7)

    def _bias(self) -> None:
        self.add("bias", self.size, self.array(self.size))

    def _slice(self) -> None:
        source = self.earlier()
        start = int(self.random.integers(self.sizes[source]))
        length = self.integer(self.sizes[source] - start)
        self.add("slice", length, inputs=(source,), start=start, length=length)

    def _concat(self) -> None:
        sources = tuple(self.earlier() for _ in range(self.integer(3)))
        self.add("concat", sum(self.sizes[source] for source in sources), inputs=sources)

    def _pair(self, name: str) -> None:
        first = self.earlier()
        second = self.layer(self.sizes[first])
        inputs = (first, second) if self.random.random() < 0.7 else (first, first)
        self.add(name, self.sizes[first], inputs=inputs)

    def _add(self) -> None:
        self._pair("add")

    def _multiply(self) -> None:
        self._pair("multiply")

    def _transpose(self) -> None:
        rows = self.integer(9)
        self.layer(rows * self.integer(9))
        self.add("transpose", self.size, rows=rows)

    def _image(self) -> tuple[int, int, int]:
        height, width, channels = self.integer(7), self.integer(9), self.integer(5)
        self.layer(height * width * channels)
        return height, width, channels

    def _conv2d(self) -> None:
        height, width, channels = self._image()
        stride, padding, outputs = self.integer(3), int(self.random.integers(4)), self.integer(20)
        down, right = self.integer(min(4, height + 2 * padding)), self.integer(min(4, width + 2 * padding))
        names = self.array(outputs, down, right, channels, scale=(down * right * channels) ** -0.5), self.array(outputs)
        places = ((height + 2 * padding - down) // stride + 1) * ((width + 2 * padding - right) // stride + 1)
        options = {"height": height, "width": width, "stride": stride, "padding": padding}
        self.add("conv2d", places * outputs, *names, **options)

    def _max_pool(self) -> None:
        height, width, channels = self._image()
        size, stride = self.integer(min(3, height, width)), self.integer(3)
        padding = int(self.random.integers(size))
        places = ((height + 2 * padding - size) // stride + 1) * ((width + 2 * padding - size) // stride + 1)
        options = {"height": height, "width": width, "stride": stride, "padding": padding, "size": size}
        self.add("max_pool", places * channels, **options)

    def _join_rows(self) -> None:
        rows, vector = self.integer(7), self.earlier()
        self.layer(rows * self.integer(6))
        self.add("join_rows", self.size + rows * self.sizes[vector], inputs=(len(self.body), vector), rows=rows)

    def _legal(self, parts: int) -> tuple[int, ...]:
        """Return the input that marks legal parts, or nothing: a slice of the mask or the output of a layer."""
        if self.actions >= parts and self.random.random() < 0.7:
            start = int(self.random.integers(self.actions - parts + 1))
            return (self.add("slice", parts, inputs=(MASK_NUMBERS,), start=start, length=parts),)
        return (self.layer(parts),) if self.random.random() < 0.5 else ()

    def _attention(self) -> None:
        heads, rows, keys = self.integer(3), self.integer(14), self.integer(9)
        width, source = heads * self.integer(11), len(self.body)
        query, key, value = (self.layer(parts * width, source) for parts in (rows, keys, keys))
        inputs = (query, key, value, *self._legal(keys))
        self.add("attention", rows * width, inputs=inputs, heads=heads, rows=rows, keys=keys)

    def _mean_rows(self) -> None:
        rows, width = self.integer(7), self.integer(12)
        parts = self.layer(rows * width)
        self.add("mean_rows", width, inputs=(parts, *self._legal(rows)), rows=rows)

    def _cell(self, name: str, gates: int, states: int) -> None:
        hidden, size, start = self.integer(20), self.size, self.memory_size + int(self.random.integers(3))
        names = (
            self.array(gates * hidden, size, scale=size**-0.5),
            self.array(gates * hidden, hidden, scale=hidden**-0.5),
            self.array(gates * hidden, scale=0.5),
            self.array(gates * hidden, scale=0.5),
        )
        self.memory_size = start + states * hidden
        self.add(name, hidden, *names, memory=start)

    def _gru(self) -> None:
        self._cell("gru", 3, 1)

    def _lstm(self) -> None:
        self._cell("lstm", 4, 2)

    def _noise(self) -> None:
        size = self.integer(5)
        noise = self.add("noise", size, size=size, scale=0.5 if self.random.random() < 0.8 else 0.0)
        self.add("concat", size + self.sizes[-2], inputs=(noise - 1, noise))

    def _expectation(self) -> None:
        rows, atoms = self.integer(6), self.integer(12)
        self.layer(rows * atoms)
        self.add("expectation", rows, self.array(atoms), rows=rows)

    def head(self, name: str) -> Operation:
        if name == "gaussian":
            return Operation(name, (self.array(self.size, scale=0.5),))
        if name in BOUNDED_OPTIONS:
            size = self.size // (2 if name in PAIRED_HEADS else 1)
            low, high = self.array(size), self.array(size)
            self.weights[high] = self.weights[low] + 1.0 + np.abs(self.weights[high])
            return Operation(name, (low, high), BOUNDED_OPTIONS[name])
        if name in MULTI_HEADS:
            ends = np.flatnonzero(self.random.random(self.size - 1) < 0.4) + 1
            self.weights["choices"] = np.diff([0, *ends, self.size]).astype(np.float32)
            return Operation(name, ("choices",))
        return Operation(name, (), {"epsilon": 0.3} if name == "epsilon_greedy" else {})


@st.composite
def cases(draw: st.DrawFn, heads: tuple[str, ...] = HEADS) -> Case:
    head, operations = draw(st.sampled_from(heads)), draw(OPERATIONS)
    actions = draw(st.integers(1, 12)) if head in DISCRETE_HEADS else 0
    builder = Builder(draw(st.integers(0, 2**32 - 1)), draw(WIDTHS), actions)
    rows = builder.random.standard_normal((draw(st.integers(1, 17)), builder.size)).astype(np.float32)
    for operation in operations:
        builder.operation(operation)
    if actions or builder.size > 70 or (head in PAIRED_HEADS and builder.size % 2):
        builder.layer(actions or 2 * draw(st.integers(1, 10)))
    program = Program(tuple(builder.body), builder.head(head))
    parts = program.head.parts(actions, builder.weights)
    mask = _random_mask(builder.random, len(rows), parts) if actions and draw(st.booleans()) else None
    memory = np.tanh(builder.random.standard_normal((len(rows), program.memory_size(builder.weights))))
    return Case(program, builder.weights, rows, mask, memory.astype(np.float32), draw(st.integers(0, 2**64 - 1)))


def _random_mask(random: np.random.Generator, rows: int, parts: tuple[int, ...]) -> Array:
    mask: Array = random.random((rows, sum(parts))) < 0.4
    for end, choices in zip(np.cumsum(parts), parts, strict=True):
        mask[np.arange(rows), end - 1 - random.integers(choices, size=rows)] = True
    return mask


def _values(case: Case, row: int, counter: int) -> dict[int, Array]:
    """Return the result of each operation for one row in float64. Its draws start at ``counter``."""
    context = OperationContext(case.weights, Draws(case.key, counter), case.memory[row : row + 1].astype(np.float64))
    legal = np.ones((1, 12)) if case.mask is None else case.mask[row : row + 1].astype(np.float64)
    values = {MASK_NUMBERS: legal, ROW: case.rows[row : row + 1].astype(np.float64)}
    with np.errstate(all="ignore"):
        for number, operation in enumerate(case.program.body, start=1):
            values[number] = apply(operation, [values[s] for s in operation.sources(number)], context)
    return values


def _tolerance(case: Case) -> float:
    """Return the tolerance for float32: each operation may round the largest intermediate value."""
    rows = range(len(case.rows))
    scale = max(1.0, *(float(np.abs(value).max()) for row in rows for value in _values(case, row, 0).values()))
    return 2e-7 * scale * (len(case.program.body) + 1)


@NEEDS_NATIVE
@settings(max_examples=400, deadline=None)
@given(case=cases(heads=("mode",)))
def test_native_and_numpy_bodies_agree(case: Case) -> None:
    memories = case.memory.copy(), case.memory.copy()
    expected, _ = case.build(NumpyProgram).act(case.rows, None, Draws(case.key), memories[0])
    got, _ = case.build(NativeProgram).act(case.rows, None, Draws(case.key), memories[1])
    assert expected.dtype == got.dtype == np.float32
    assert expected.shape == got.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=_tolerance(case))
    np.testing.assert_allclose(memories[1], memories[0], rtol=0, atol=_tolerance(case))


@NEEDS_NATIVE
@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_native_and_numpy_decisions_agree(case: Case) -> None:
    streams = Draws(case.key), Draws(case.key)
    numpy_program, native_program = case.build(NumpyProgram), case.build(NativeProgram)
    expected, expected_log = numpy_program.act(case.rows, case.mask, streams[0], case.memory.copy())
    got, got_log = native_program.act(case.rows, case.mask, streams[1], case.memory.copy())
    assert streams[0].state() == streams[1].state()
    assert (expected.dtype, expected.shape, expected_log.dtype) == (got.dtype, got.shape, got_log.dtype)
    tolerance = _tolerance(case)
    same = np.ones(len(case.rows), np.bool_)
    if case.discrete:
        pair = expected.reshape(len(same), -1), got.reshape(len(same), -1)
        for row, part in np.argwhere(pair[0] != pair[1]):
            draws = streams[0].counter // len(case.rows)
            assert _margin(case, (row, part), draws, *(int(a[row, part]) for a in pair)) < 10 * tolerance
        same = (pair[0] == pair[1]).all(axis=1)
    else:
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * _stretch(case))
    atol = tolerance * max(2, numpy_program.output_size)
    np.testing.assert_allclose(got_log[same], expected_log[same], rtol=0, atol=atol)


def _stretch(case: Case) -> float:
    """Return the factor by which a head amplifies an error of its input."""
    spans = [case.weights[name] for name in case.program.head.weights]
    return max(1.0, *(float(np.abs(span).max()) for span in spans)) * 2.0 if spans else 1.0


def _margin(case: Case, place: tuple[int, int], draws: int, one: int, other: int) -> float:
    """Return the distance between the outputs of two actions of one dimension, or of the draw from a boundary."""
    (row, part), parts = place, case.parts
    within = slice(sum(parts[:part]), sum(parts[: part + 1]))
    outputs = _values(case, row, row * draws)[len(case.program.body)][0, within]
    if not case.program.head.name.endswith("categorical"):
        return abs(float(outputs[one]) - float(outputs[other]))
    legal = np.ones(len(outputs), np.bool_) if case.mask is None else case.mask[row, within]
    weight = np.where(legal, np.exp(outputs - outputs.max()), 0.0)
    # The head uses the last draws of the row, one per action dimension.
    uniform = Draws(case.key, (row + 1) * draws - len(parts) + part).uniforms(1)[0]
    return float(np.abs(np.cumsum(weight) / weight.sum() - uniform).min())


@settings(max_examples=150, deadline=None)
@given(case=cases())
@pytest.mark.parametrize("form", [NumpyProgram, pytest.param(NativeProgram, marks=NEEDS_NATIVE)])
def test_batch_is_bit_exact_with_single_rows(form: Form, case: Case) -> None:
    program, batch_draws, row_draws = case.build(form), Draws(case.key), Draws(case.key)
    memory = case.memory.copy()
    actions, log_probs = program.act(case.rows, case.mask, batch_draws, memory)
    for row in range(len(case.rows)):
        mask, own_memory = None if case.mask is None else case.mask[row], case.memory[row].copy()
        action, log_prob = program.decide(case.rows[row], mask, row_draws, own_memory)
        assert np.asarray(action).tobytes() == actions[row].tobytes()
        assert np.float32(log_prob) == log_probs[row]
        assert own_memory.tobytes() == memory[row].tobytes()
        assert isinstance(log_prob, float)
        assert isinstance(action, int) == (case.discrete and not case.multi_discrete)
    assert batch_draws.state() == row_draws.state()


@settings(max_examples=100, deadline=None)
@given(case=cases(), place=st.integers(0, 10**6))
@pytest.mark.parametrize("form", [NumpyProgram, pytest.param(NativeProgram, marks=NEEDS_NATIVE)])
def test_nan_gives_legal_action_and_nan_log_probability(form: Form, case: Case, place: int) -> None:
    rows = case.rows.copy()
    rows.flat[place % rows.size] = np.nan
    nan_case = replace(case, rows=rows)
    outputs = [_values(nan_case, row, 0)[len(case.program.body)] for row in range(len(rows))]
    has_nan = np.array([np.isnan(output).any() for output in outputs])
    # Some programs ignore parts of their input.
    assume(has_nan.any())
    program, memory = case.build(form), case.memory.copy()
    actions, log_probs = program.act(rows, case.mask, Draws(case.key), memory)
    assert np.isnan(log_probs).tolist() == has_nan.tolist()
    assert memory[has_nan].tobytes() == case.memory[has_nan].tobytes()
    if case.discrete:
        masks = np.ones((len(rows), sum(case.parts)), np.bool_) if case.mask is None else case.mask
        firsts = np.array([first_allowed(MultiDiscrete(case.parts), mask) for mask in masks])
        assert actions[has_nan].reshape(has_nan.sum(), -1).tolist() == firsts[has_nan].tolist()
