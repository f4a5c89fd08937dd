"""Policy programs: accepted and rejected inputs, thread safety and JSON round trip."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import pytest

from rl4sys.errors import MissingExtraError, SpecError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.native_program import NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array

Form: TypeAlias = type[NumpyProgram] | type[NativeProgram]

CATEGORICAL = Program((Operation("linear", ("w", "b")), Operation("tanh")), Operation("categorical"))
GAUSSIAN = Program((Operation("linear", ("w", "b")),), Operation("gaussian", ("log_std",)))
SQUASHED = Operation("squashed_gaussian", ("low", "high"), {"log_std_min": -5.0, "log_std_max": 2.0})
WEIGHTS: dict[str, Array] = {
    "w": np.array([[1, -1], [0.5, 2], [-1, 0.25]], np.float32),
    "b": np.array([0, 0.5, -0.5], np.float32),
    "log_std": np.array([-1, 0, 0.5], np.float32),
}
ROW = np.array([0.5, -1], np.float32)


def test_linear_and_tanh_match_hand_computation(form: Form) -> None:
    outputs = form(CATEGORICAL, WEIGHTS, 2).forward(ROW[None])
    np.testing.assert_allclose(outputs, np.tanh([[1.5, -1.25, -1.25]]), rtol=1e-6)
    assert outputs.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tanh", [-1.0, -0.76159416, 0.0, 0.46211716, 1.0]),
        ("relu", [0.0, 0.0, 0.0, 0.5, 30.0]),
        ("elu", [-1.0, -0.63212056, 0.0, 0.5, 30.0]),
        ("gelu", [0.0, -0.15865525, 0.0, 0.34573123, 30.0]),
        ("silu", [-2.8072868e-12, -0.26894142, 0.0, 0.31122967, 30.0]),
    ],
)
def test_activation_matches_hand_computation(form: Form, name: str, expected: list[float]) -> None:
    program = Program((Operation(name),), Operation("mode"))
    outputs = form(program, {}, 5).forward(np.array([[-30.0, -1.0, 0.0, 0.5, 30.0]], np.float32))
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["tanh", "relu", "elu", "gelu", "silu"])
def test_activation_matches_torch_to_float32_precision(form: Form, name: str) -> None:
    torch = pytest.importorskip("torch")
    rows = np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(1e-12, 1, 99)]).astype(np.float32)[:, None]
    outputs = form(Program((Operation(name),), Operation("mode")), {}, 1).forward(rows)
    wide = torch.as_tensor(rows.astype(np.float64))
    expected = getattr(torch, name, getattr(torch.nn.functional, name))(wide).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=2e-7, atol=5e-7)


def test_normalize_clips_outliers(form: Form) -> None:
    operation = Operation("normalize", ("mean", "scale"), {"limit": 3.0})
    weights: dict[str, Array] = {"mean": np.array([1, 0, 0], np.float32), "scale": np.array([2, 10, 10], np.float32)}
    outputs = form(Program((operation,), Operation("mode")), weights, 3).forward(np.array([[0, 9, -9]], np.float32))
    assert outputs.tolist() == [[-2, 3, -3]]


def test_infinities_pass_through_activations(form: Form) -> None:
    row = np.array([[np.inf, -np.inf]], np.float32)
    got = {
        name: form(Program((Operation(name),), Operation("mode")), {}, 2).forward(row)[0].tolist()
        for name in ("tanh", "relu", "elu", "gelu", "silu")
    }
    assert (got["tanh"], got["relu"], got["elu"]) == ([1, -1], [np.inf, 0], [np.inf, -1])
    for name in ("gelu", "silu"):
        assert got[name][0] == np.inf
        assert np.isnan(got[name][1])


@pytest.mark.parametrize(
    ("row", "given"),
    [
        (np.zeros(3, np.float32), r"float32 of shape \(3,\)"),
        (np.zeros((1, 2), np.float32), r"float32 of shape \(1, 2\)"),
        (np.zeros(2, np.complex64), r"complex64 of shape \(2,\)"),
        (np.zeros(2, np.bool_), r"bool of shape \(2,\)"),
        (np.array(["a", "b"]), r"<U1 of shape \(2,\)"),
        (None, r"object of shape \(\)"),
    ],
)
def test_row_of_wrong_shape_or_type_is_rejected(form: Form, row: Any, given: str) -> None:
    with pytest.raises(SpecError, match=rf"the row is {given}; expected float32 of shape \(2,\)"):
        form(CATEGORICAL, WEIGHTS, 2).decide(row, None, Draws(0))


def test_rows_of_wrong_or_unequal_lengths_are_rejected(form: Form) -> None:
    program = form(CATEGORICAL, WEIGHTS, 2)
    for call in (program.forward, lambda rows: program.act(rows, None, Draws(0))):
        with pytest.raises(SpecError, match=r"the rows are float32 of shape \(4, 3\); expected .* shape \(N, 2\)"):
            call(np.zeros((4, 3), np.float32))
    ragged: Any = [[1.0, 2.0], [3.0]]
    with pytest.raises(SpecError, match=r"the rows are nested with unequal lengths; expected .* shape \(N, 2\)"):
        program.forward(ragged)


@pytest.mark.parametrize(
    "row",
    [
        ROW.astype(np.float64),
        ROW.astype(np.float16),
        ROW.astype(">f4"),
        np.repeat(ROW, 2)[::2],
        [0.5, -1],
        (0.5, -1.0),
    ],
    ids=["float64", "float16", "big-endian", "strided", "list", "tuple"],
)
def test_row_types_and_layouts_are_converted(form: Form, row: Any) -> None:
    program = form(GAUSSIAN, WEIGHTS, 2)
    expected, expected_log = program.decide(ROW, None, Draws(1))
    action, log_prob = program.decide(row, None, Draws(1))
    assert np.array_equal(action, expected)
    assert log_prob == expected_log


def test_read_only_row_is_accepted(form: Form) -> None:
    row = ROW.copy()
    row.flags.writeable = False
    assert form(CATEGORICAL, WEIGHTS, 2).decide(row, None, Draws(0)) == form(CATEGORICAL, WEIGHTS, 2).decide(
        ROW, None, Draws(0)
    )


def test_later_weight_changes_do_not_affect_the_program(form: Form) -> None:
    weights = {name: array.copy() for name, array in WEIGHTS.items()}
    program = form(GAUSSIAN, weights, 2)
    before = program.act(ROW[None], None, Draws(0))
    for array in weights.values():
        np.add(array, 1, out=array)
    after = program.act(ROW[None], None, Draws(0))
    assert [b.tolist() for b in before] == [a.tolist() for a in after]


def test_weight_types_and_layouts_are_converted(form: Form) -> None:
    unusual = {name: np.asfortranarray(array.astype(np.float64)) for name, array in WEIGHTS.items()}
    rows = np.stack([ROW, -ROW])
    assert np.array_equal(form(GAUSSIAN, unusual, 2).forward(rows), form(GAUSSIAN, WEIGHTS, 2).forward(rows))


def test_program_is_thread_safe(form: Form) -> None:
    program = form(CATEGORICAL, WEIGHTS, 2)
    rows = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)

    def decisions(key: int) -> list[tuple[int | Array, float]]:
        draws = Draws(key)
        return [program.decide(row, None, draws) for row in rows]

    expected = [decisions(key) for key in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(decisions, range(4))) == expected
    assert expected[0] != expected[1]


def test_empty_batch_gives_no_decisions(form: Form) -> None:
    draws, none = Draws(0), np.zeros((0, 2), np.float32)
    actions, log_probs = form(CATEGORICAL, WEIGHTS, 2).act(none, np.zeros((0, 3), np.bool_), draws)
    assert (actions.shape, actions.dtype.name, log_probs.shape, draws.counter) == ((0,), "int64", (0,), 0)
    actions, log_probs = form(GAUSSIAN, WEIGHTS, 2).act(none, None, draws)
    assert (actions.shape, actions.dtype.name, log_probs.shape, draws.counter) == ((0, 3), "float32", (0,), 0)


def test_mask_without_legal_action_is_rejected_before_any_draw(form: Form) -> None:
    program, draws = form(CATEGORICAL, WEIGHTS, 2), Draws(0)
    mask = np.array([[True, False, True], [False, False, False]])
    with pytest.raises(SpecError, match="the mask of row 1 allows none of the 3 actions; at least one must be legal"):
        program.act(np.stack([ROW, ROW]), mask, draws)
    with pytest.raises(SpecError, match="the mask of row 0 allows none of the 3 actions"):
        program.decide(ROW, mask[1], draws)
    assert draws.counter == 0


@pytest.mark.parametrize(
    "mask", [np.ones(4, np.bool_), np.ones((1, 3), np.bool_), np.ones(3, np.int64), [1.0, 0.0, 1.0]]
)
def test_mask_of_wrong_shape_or_type_is_rejected(form: Form, mask: Any) -> None:
    program = form(CATEGORICAL, WEIGHTS, 2)
    with pytest.raises(SpecError, match=r"the mask is .* of shape .*; expected bool of shape \(3,\)"):
        program.decide(ROW, mask, Draws(0))
    with pytest.raises(SpecError, match=r"the mask is .* of shape .*; expected bool of shape \(1, 3\)"):
        program.act(ROW[None], np.asarray(mask)[None], Draws(0))


def test_list_and_non_contiguous_masks_are_accepted(form: Form) -> None:
    program = form(CATEGORICAL, WEIGHTS, 2)
    mask: Any = [False, False, True]
    assert program.decide(ROW, mask, Draws(0))[0] == 2
    assert program.decide(ROW, np.repeat(mask, 2)[::2], Draws(0))[0] == 2


def test_continuous_policy_rejects_a_mask(form: Form) -> None:
    program = form(GAUSSIAN, WEIGHTS, 2)
    with pytest.raises(SpecError, match="this policy's actions are continuous: they take no mask"):
        program.act(ROW[None], np.ones((1, 3), np.bool_), Draws(0))
    with pytest.raises(SpecError, match="this policy's actions are continuous: they take no mask"):
        program.decide(ROW, np.ones(3, np.bool_), Draws(0))


@pytest.mark.parametrize(
    ("program", "weights", "message"),
    [
        (CATEGORICAL, {}, r"linear needs the weights \['w', 'b'\], which the snapshot does not have"),
        (CATEGORICAL, {**WEIGHTS, "w": np.zeros((3, 4))}, r"linear got weights of shapes \[\(3, 4\), \(3,\)\]"),
        (CATEGORICAL, {**WEIGHTS, "b": np.zeros(2)}, r"expected \[\(3, 2\), \(3,\)\]"),
        (GAUSSIAN, {**WEIGHTS, "log_std": np.zeros(2)}, r"gaussian got weights of shapes \[\(2,\)\] for 3 numbers"),
        (
            Program(GAUSSIAN.body, SQUASHED),
            {**WEIGHTS, "low": np.zeros(1), "high": np.ones(1)},
            "squashed_gaussian got weights of shapes .* for 3 numbers",
        ),
    ],
)
def test_missing_or_misshaped_weights_are_reported(
    form: Form, program: Program, weights: dict[str, Array], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        form(program, weights, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Operation("softmax"), "the policy needs the operation 'softmax', which this version"),
        (lambda: Operation("linear", ("w",)), r"linear takes 2 weights, got \['w'\]"),
        (lambda: Operation("epsilon_greedy"), r"epsilon_greedy has the options \{\}; expected finite options: epsilon"),
        (lambda: Program((), Operation("tanh")), "a program must have exactly one head"),
        (lambda: Program((Operation("mode"),), Operation("mode")), "a program must have exactly one head"),
        (lambda: Program.from_json([{"name": "tanh"}]), "not a policy program"),
        (lambda: Program.from_json([]), "not a policy program"),
    ],
)
def test_invalid_program_json_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize("program", [CATEGORICAL, GAUSSIAN, Program((), SQUASHED)])
def test_program_round_trips_through_json(program: Program) -> None:
    assert Program.from_json(json.loads(json.dumps(program.to_json()))) == program


@pytest.mark.parametrize(
    ("head", "greedy"),
    [
        (Operation("categorical"), Operation("argmax")),
        (Operation("epsilon_greedy", (), {"epsilon": 0.5}), Operation("argmax")),
        (Operation("argmax"), Operation("argmax")),
        (Operation("gaussian", ("log_std",)), Operation("mode")),
        (SQUASHED, Operation("squashed_mode", ("low", "high"))),
        (Operation("squashed_mode", ("low", "high")), Operation("squashed_mode", ("low", "high"))),
    ],
)
def test_greedy_program_differs_only_in_its_head(head: Operation, greedy: Operation) -> None:
    assert Program(CATEGORICAL.body, head).greedy() == Program(CATEGORICAL.body, greedy)


def test_greedy_policy_uses_no_draws(form: Form) -> None:
    program, draws = form(CATEGORICAL.greedy(), WEIGHTS, 2), Draws(0)
    assert program.decide(ROW, None, draws) == (0, 0.0)
    assert program.decide(ROW, np.array([False, True, True]), draws) == (1, 0.0)
    assert draws.counter == 0


@pytest.mark.skipif(NATIVE, reason="the native core is installed")
def test_missing_native_core_is_reported() -> None:
    with pytest.raises(MissingExtraError, match="the native core is not installed or RL4SYS_NUMPY=1 is set"):
        NativeProgram(CATEGORICAL, WEIGHTS, 2)
