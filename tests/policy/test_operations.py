"""Body operations of a program against hand-computed values, and rejected programs."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws, PythonDraws
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Array, Box, Discrete, Spec

MODE, ARGMAX = Operation("mode"), Operation("argmax")


def op(name: str, *inputs: int, weights: tuple[str, ...] = (), **options: float) -> Operation:
    return Operation(name, weights, options, inputs)


def computed(row: list[float], *body: Operation, **weights: Any) -> list[float]:
    arrays = {name: np.array(values, np.float32) for name, values in weights.items()}
    outputs = NumpyProgram(Program(body, MODE), arrays, len(row)).forward(np.array([row], np.float32))
    return [float(value) for value in outputs[0]]


def close(values: list[float]) -> Any:
    return pytest.approx(values, rel=1e-6, abs=1e-6)


def test_linear_layer_applies_to_each_row_of_its_input() -> None:
    linear = op("linear", weights=("w", "b"), rows=2)
    assert computed([1, 2, 3, 4], linear, w=[[1, 1], [1, -1], [0, 2]], b=[0, 0, 1]) == [3, -1, 5, 7, -1, 9]


def test_layer_norm_uses_population_variance_of_each_row() -> None:
    norm = op("layer_norm", weights=("s", "b"), epsilon=0.25, rows=2)
    # The two rows of the input have means 2 and 0, and variances 1 and 4.
    near, far = 1 / math.sqrt(1.25), 2 / math.sqrt(4.25)
    assert computed([1, 3, -2, 2], norm, s=[1, 2], b=[0, 10]) == close([-near, 2 * near + 10, -far, 2 * far + 10])
    assert computed([1, 3], op("layer_norm", weights=("s", "b"), epsilon=0.0), s=[1, 1], b=[0, 0]) == [-1, 1]


def test_elementwise_and_reshaping_operations_match_expected_values() -> None:
    assert computed([1, -2], op("scale", factor=2.5)) == [2.5, -5]
    assert computed([1, -2], op("bias", weights=("b",)), b=[10, 20]) == [11, 18]
    assert computed([1, 2, 3, 4], op("slice", start=1, length=2)) == [2, 3]
    assert computed([1, 2], op("scale", factor=-1), op("concat", 1, 0, 1)) == [-1, -2, 1, 2, -1, -2]
    assert computed([1, 2], op("scale", factor=3), op("add", 0, 1)) == [4, 8]
    assert computed([1, 2], op("scale", factor=3), op("multiply", 0, 1)) == [3, 12]
    assert computed([1, 2, 3, 4, 5, 6], op("transpose", rows=2)) == [1, 4, 2, 5, 3, 6]


def test_default_input_is_the_previous_result() -> None:
    body = (op("scale", factor=2), op("scale", factor=3), op("scale", 1, factor=5))
    assert computed([1], *body) == [10]
    program = Program(body, op("mode", 2))
    assert NumpyProgram(program, {}, 1).forward(np.ones((1, 1), np.float32)).tolist() == [[6]]


def test_convolution_matches_expected_values() -> None:
    image = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    window = {"w": [[[[1], [10]], [[100], [1000]]]], "b": [0.5]}
    plain = op("conv2d", weights=("w", "b"), height=3, width=3, stride=1, padding=0)
    assert computed(image, plain, **window) == [5421.5, 6532.5, 8754.5, 9865.5]
    padded = op("conv2d", weights=("w", "b"), height=3, width=3, stride=2, padding=1)
    assert computed(image, padded, **window) == [1000.5, 3200.5, 7040.5, 9865.5]
    two = op("conv2d", weights=("w", "b"), height=1, width=2, stride=1, padding=0)
    kernel = [[[[1, 2]]], [[[0, -1]]]]
    assert computed([1, 2, 3, 4], two, w=kernel, b=[0, 100]) == [5, 98, 11, 96]


def test_max_pool_ignores_padding() -> None:
    image = [-1, -20, -3, -40, -5, -60, -7, -80, -9, -100, -11, -120, -13, -140, -15, -160, -17, -180]
    pool = op("max_pool", height=3, width=3, size=2, stride=2, padding=0)
    assert computed(image, pool) == [-1, -20]
    padded = op("max_pool", height=3, width=3, size=3, stride=2, padding=1)
    assert computed(image, padded) == [-1, -20, -3, -40, -7, -80, -9, -100]


def test_join_rows_appends_vector_to_every_row() -> None:
    assert computed([1, 2, 3, 4, 9], op("slice", start=0, length=4), op("slice", 0, start=4, length=1),
                    op("join_rows", 1, 2, rows=2)) == [1, 2, 9, 3, 4, 9]  # fmt: skip


def test_attention_weights_values_by_softmax_per_head() -> None:
    # One query and two keys of width 4 in two heads; each head scales by the root of its width, 2.
    row = [math.sqrt(2), 0, 0, math.sqrt(2), 1, 0, 0, 0, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60, 70, 80]
    parts = [op("slice", 0, start=start, length=n) for start, n in ((0, 4), (4, 8), (12, 8))]
    first, second = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(3))
    expected = [10 * first + 50 * (1 - first), 20 * first + 60 * (1 - first)]
    expected += [30 * second + 70 * (1 - second), 40 * second + 80 * (1 - second)]
    assert computed(row, *parts, op("attention", 1, 2, 3, heads=2, rows=1, keys=2)) == close(expected)


def attended(legal: list[float], row: list[float]) -> list[float]:
    """Return the self-attention of two rows of width 1. ``legal`` has one flag per row."""
    body = (op("slice", start=0, length=2), op("slice", 0, start=2, length=2))
    return computed([*row, *legal], *body, op("attention", 1, 1, 1, 2, heads=1, rows=2, keys=2))


def test_attention_ignores_illegal_keys() -> None:
    assert attended([1, 0], [2, 7]) == [2, 2]
    assert attended([0.5, 0.6], [2, 7]) == [7, 7]
    assert attended([0, 0], [2, 7]) == [0, 0]
    assert attended([1, 0], [2, math.inf]) == [2, pytest.approx(math.nan, nan_ok=True)]
    share = 1 / (1 + math.exp(2 * 5))
    assert attended([1, 1], [2, 7])[0] == pytest.approx(2 * share + 7 * (1 - share))


def test_mean_rows_averages_legal_rows_only() -> None:
    x, legal = op("slice", start=0, length=4), op("slice", 0, start=4, length=2)
    masked = op("mean_rows", 1, 2, rows=2)
    assert computed([1, 2, 3, 4], op("mean_rows", rows=2)) == [2, 3]
    assert computed([1, 2, 3, 4, 0, 1], x, legal, masked) == [3, 4]
    assert computed([1, 2, 3, 4, 1, 1], x, legal, masked) == [2, 3]
    assert computed([1, 2, 3, 4, 0, 0], x, legal, masked) == [0, 0]


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_nan_in_illegal_row_still_propagates(place: int) -> None:
    row = [1.0, 2.0, 1.0, 0.0]
    row[place] = math.nan
    assert np.isnan(attended(row[2:], row[:2])).all()
    body = (op("slice", start=0, length=2), op("slice", 0, start=2, length=2), op("mean_rows", 1, 2, rows=2))
    assert np.isnan(computed(row, *body)).all()


def test_expectation_uses_softmax_of_each_row() -> None:
    logits = [0.0, math.log(3), 5.0, 5.0]
    assert computed(logits, op("expectation", weights=("z",), rows=2), z=[-1, 1]) == close([0.5, 0])


def test_missing_mask_is_read_as_all_ones() -> None:
    body = (op("slice", -1, start=0, length=2), op("scale", factor=10), op("add", 0, 2))
    program = NumpyProgram(Program((*body, op("concat", 3, 1)), op("argmax", 3)), {}, 2)
    rows = np.array([[3, 4], [5, 4]], np.float32)
    assert program.act(rows, None, Draws(0))[0].tolist() == [1, 0]
    body = (op("multiply", 0, -1), op("scale", factor=-1), op("add", 2, -1))
    masked = NumpyProgram(Program(body, ARGMAX), {}, 3)
    row = np.array([9, 8, -1], np.float32)
    assert masked.decide(row, None, Draws(0))[0] == 2
    assert masked.decide(row, np.array([True, True, False]), Draws(0))[0] == 1


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_gru_cell_matches_hand_computation() -> None:
    weights = {
        "ih": np.array([[1], [2], [3]], np.float32),
        "hh": np.array([[0.5], [-0.5], [2]], np.float32),
        "bi": np.array([0.1, 0.2, 0.3], np.float32),
        "bh": np.array([0.4, 0.5, 0.6], np.float32),
    }
    program = NumpyProgram(Program((op("gru", weights=("ih", "hh", "bi", "bh"), memory=1),), MODE), weights, 1)
    assert program.memory_size == 2
    memory = np.array([7, 0.25], np.float32)
    action, _ = program.decide(np.array([0.5], np.float32), None, Draws(0), memory)
    reset, update = sigmoid(0.6 + 0.525), sigmoid(1.2 + 0.375)
    hidden = (1 - update) * math.tanh(1.8 + reset * 1.1) + update * 0.25
    assert memory.tolist() == [7, pytest.approx(hidden)]
    assert np.asarray(action).tolist() == [pytest.approx(hidden)]


def test_lstm_cell_matches_hand_computation() -> None:
    weights = {
        "ih": np.array([[1], [2], [3], [4]], np.float32),
        "hh": np.array([[0.5], [-0.5], [2], [1]], np.float32),
        "bi": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        "bh": np.zeros(4, np.float32),
    }
    program = NumpyProgram(Program((op("lstm", weights=("ih", "hh", "bi", "bh"), memory=0),), MODE), weights, 1)
    memory = np.array([[0.25, 0.75]], np.float32)
    actions, _ = program.act(np.array([[0.5]], np.float32), None, Draws(0), memory)
    cell = sigmoid(1.2 - 0.125) * 0.75 + sigmoid(0.6 + 0.125) * math.tanh(1.8 + 0.5)
    hidden = sigmoid(2.4 + 0.25) * math.tanh(cell)
    assert memory.tolist() == [[pytest.approx(hidden), pytest.approx(cell)]]
    assert actions.tolist() == [[pytest.approx(hidden)]]


def test_noise_uses_two_draws_per_element_and_none_at_scale_0() -> None:
    body = (op("noise", size=2, scale=3.0), op("add", 0, 1))
    program = Program(body, Operation("gaussian", ("log_std",)))
    weights = {"log_std": np.zeros(2, np.float32)}
    rows = np.array([[1, 2], [3, 4]], np.float32)
    draws = Draws(5)
    actions, _ = NumpyProgram(program, weights, 2).act(rows, None, draws)
    uniform = PythonDraws(5).uniforms(16).reshape(2, 2, 2, 2)
    normal = np.sqrt(-2 * np.log(1 - uniform[..., 0])) * np.cos(2 * np.pi * uniform[..., 1])
    np.testing.assert_allclose(actions, rows + 3 * normal[:, 0] + normal[:, 1], rtol=1e-6)
    assert draws.counter == 16
    quiet = NumpyProgram(program.greedy(), weights, 2)
    assert quiet.act(rows, None, draws)[0].tolist() == rows.tolist()
    assert draws.counter == 16


CELL = {name: np.full(shape, 0.5, np.float32) for name, shape in {"a": (6, 2), "b": (6, 2), "c": (6,)}.items()}
GRU = op("gru", weights=("a", "b", "c", "c"), memory=0)


def test_row_with_nan_does_not_change_its_memory() -> None:
    program = NumpyProgram(Program((GRU,), ARGMAX), CELL, 2)
    memory = np.full((3, 2), 0.25, np.float32)
    rows = np.array([[1, 2], [math.nan, 1], [3, 4]], np.float32)
    _, log_probs = program.act(rows, None, Draws(0), memory)
    assert np.isnan(log_probs).tolist() == [False, True, False]
    assert (memory == 0.25).all(axis=1).tolist() == [False, True, False]
    alone = np.full(2, 0.25, np.float32)
    program.decide(rows[2], None, Draws(0), alone)
    assert alone.tobytes() == memory[2].tobytes()


@pytest.mark.parametrize(
    ("memory", "given"),
    [
        (None, "a NoneType"),
        ([0.0, 0.0], "a list"),
        (np.zeros(2), r"float64 of shape \(2,\)"),
        (np.zeros(3, np.float32), r"float32 of shape \(3,\)"),
        (np.zeros((1, 2), np.float32), r"float32 of shape \(1, 2\)"),
    ],
)
def test_memory_of_wrong_type_or_shape_is_rejected(memory: Any, given: str) -> None:
    program = NumpyProgram(Program((GRU,), ARGMAX), CELL, 2)
    with pytest.raises(SpecError, match=rf"the memory is {given}; expected .*float32 .*shape \(2,\)"):
        program.decide(np.zeros(2, np.float32), None, Draws(0), memory)


@pytest.mark.parametrize("body", [(GRU,), (op("noise", size=2, scale=1.0),), (op("add", 0, -1),)])
def test_forward_is_rejected_with_memory_noise_or_mask(body: tuple[Operation, ...]) -> None:
    with pytest.raises(SpecError, match="forward needs a program without memory, noise and mask; use act or decide"):
        NumpyProgram(Program(body, ARGMAX), CELL, 2).forward(np.zeros((1, 2), np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op("add", 0), r"add takes 2 inputs, got \[0\]"),
        (lambda: op("add"), r"add takes 2 inputs, got \[\]"),
        (lambda: op("noise", 0, size=1, scale=1), r"noise takes 0 inputs, got \[0\]"),
        (lambda: op("tanh", 0, 0), r"tanh takes 1 inputs, got \[0, 0\]"),
        (lambda: op("slice", start=0.5, length=1), r"start of slice is 0\.5; expected an integer from 0 to"),
        (lambda: op("slice", start=0, length=0), "length of slice is 0; expected an integer from 1 to"),
        (lambda: op("transpose", rows=2**25), "rows of transpose is 33554432; expected an integer from 1 to"),
        (lambda: op("scale"), r"scale has the options \{\}; expected finite options: factor"),
        (lambda: op("linear", weights=("w", "b"), columns=1), "linear has the options .*; expected finite options"),
        (
            lambda: op("max_pool", height=4, width=4, size=2, stride=1, padding=2),
            "expected a padding smaller than size",
        ),
        (
            lambda: Program((op("tanh", 1),), MODE),
            r"tanh \(operation 1\) uses the values \[1\] as inputs; expected -1 to 0",
        ),
        (lambda: Program((op("tanh", -2),), MODE), r"tanh \(operation 1\) uses the values \[-2\]"),
        (lambda: Program((op("tanh", -1),), MODE), "uses the mask, but its actions are continuous"),
        (lambda: Program((op("tanh"),) * 4096, MODE), "the program has 4097 operations; the maximum is 4096"),
        (lambda: Program.from_json([{"name": "mode", "weights": [], "options": {}, "inputs": [0.5]}]), "not a policy"),
    ],
)
def test_invalid_program_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


CONV = {"kernel": np.zeros((1, 9, 9, 1), np.float32), "offset": np.zeros(1, np.float32)}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((op("slice", start=4, length=3),), r"slice got 6 numbers; expected 7 \(operation 1\)"),
        ((op("transpose", rows=4),), r"transpose got 6 numbers; expected 4"),
        ((op("slice", start=0, length=2), op("add", 0, 1)), r"add got 6 and 2 numbers; expected 6 and 6 \(operation 2"),
        ((op("conv2d", weights=("kernel", "offset"), height=2, width=3, stride=1, padding=0),), "conv2d got weights"),
        ((op("attention", 0, 0, 0, heads=4, rows=2, keys=2),), "attention got 6 and 6 and 6 numbers; expected 0"),
        ((op("mean_rows", 0, 0, rows=3),), "mean_rows got 6 and 6 numbers; expected 6 and 3"),
        ((GRU,), r"gru got weights .* for 6 numbers; expected \[\(6, 6\), \(6, 2\), \(6,\), \(6,\)\]"),
        ((op("noise", size=2**24, scale=1),), r"noise \(operation 1\) exceeds the limit of 2\*\*24 numbers"),
        ((op("concat", *[0] * 99), *(op("concat", i, i) for i in range(1, 20))), "exceeds the limit of"),
        (
            (op("max_pool", height=2, width=3, size=2**22, stride=1, padding=2**22 - 1),),
            r"max_pool \(operation 1\) exceeds the limit of",
        ),
    ],
)
def test_operation_with_wrong_shapes_is_reported(body: tuple[Operation, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        NumpyProgram(Program(body, MODE), {**CELL, **CONV}, 6)


def test_overlapping_memory_is_rejected() -> None:
    second = op("gru", weights=("a", "b", "c", "c"), memory=1)
    with pytest.raises(
        SpecError, match=r"gru \(operation 2\) uses the memory from 1 to 3, but another operation uses it up to 2"
    ):
        NumpyProgram(Program((GRU, second), MODE), CELL, 2)
    apart = op("gru", weights=("a", "b", "c", "c"), memory=4)
    assert NumpyProgram(Program((GRU, apart), MODE), CELL, 2).memory_size == 6


def test_mask_with_size_different_from_head_is_rejected() -> None:
    with pytest.raises(SpecError, match="add got 3 and 2 numbers; expected 3 and 3"):
        NumpyProgram(Program((op("add", 0, -1), op("slice", start=0, length=2)), ARGMAX), {}, 3)


def test_program_json_omits_empty_inputs() -> None:
    program = Program((op("scale", factor=2.0), op("add", 0, 1)), op("argmax", 1))
    written = program.to_json()
    assert [operation.get("inputs") for operation in written] == [None, [0, 1], [1]]
    assert Program.from_json(json.loads(json.dumps(written))) == program


def test_result_of_inserted_operation_replaces_the_input_row() -> None:
    program = Program((op("scale", factor=2.0), op("add", 0, 1), op("multiply", 0, 2)), op("argmax", 2))
    shifted = program.after(op("bias", weights=("b",)))
    weights = {"b": np.array([1, 1, 1], np.float32)}
    rows = np.array([[1, 2, -9]], np.float32)
    whole = NumpyProgram(Program(shifted.body, MODE), weights, 3).forward(rows)
    assert whole.tolist() == NumpyProgram(Program(program.body, MODE), {}, 3).forward(rows + 1).tolist()
    assert shifted.head == op("argmax", 3)


def test_snapshot_with_inputs_and_memory_round_trips() -> None:
    spec = Spec({"state": Box((2,)), "mask": Box((2,), "bool")}, Discrete(2))
    program = Program((GRU, op("multiply", 1, -1)), Operation("categorical"))
    snapshot = Snapshot(3, spec, program, CELL)
    assert Snapshot.from_bytes(snapshot.to_bytes()).program == program
    assert snapshot.memory_size == 2


def grouped(program: NumpyProgram, rows: Array, size: int) -> Array:
    return np.concatenate([program.forward(rows[i : i + size]) for i in range(0, len(rows), size)])


@pytest.mark.parametrize("seed", range(4))
def test_batch_is_bit_exact_with_single_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    channels, width = int(random.integers(1, 6)), int(random.integers(1, 9))
    body = (
        op("conv2d", weights=("w", "b"), height=6, width=5, stride=1, padding=1),
        op("max_pool", height=5, width=4, size=2, stride=1, padding=0),
        op("layer_norm", weights=("s", "t"), epsilon=1e-5, rows=12),
        op("attention", 3, 3, 3, heads=2, rows=12, keys=12),
        op("join_rows", 3, 4, rows=12),
        op("linear", weights=("v", "c"), rows=12),
        op("mean_rows", rows=12),
    )
    shapes = {"w": (4, 4, 4, channels), "b": (4,), "s": (4,), "t": (4,), "v": (width, 4 + 48), "c": (width,)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    program = NumpyProgram(Program(body, MODE), weights, 30 * channels)
    rows = random.standard_normal((7, 30 * channels)).astype(np.float32)
    assert len({grouped(program, rows, size).tobytes() for size in (1, 2, 7)}) == 1
