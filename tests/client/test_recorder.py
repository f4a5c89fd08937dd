"""Contract of the numpy and the native recorder, and their equality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.client.recorder import NumpyRecorder, Recorder
from rl4sys.errors import NumericalError, RL4SysError, SpecError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.native_program import NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Array, Box, Discrete, Spec

LINEAR = Operation("linear", ("w", "b"))
CATEGORICAL = Program((LINEAR, Operation("tanh")), Operation("categorical"))
GAUSSIAN = Program((LINEAR,), Operation("gaussian", ("log_std",)))
MULTI_DISCRETE = Program((LINEAR,), Operation("multi_categorical", ("choices",)))
WEIGHTS: dict[str, Array] = {
    "w": np.array([[1, -1], [0.5, 2], [-1, 0.25]], np.float32),
    "b": np.array([0, 0.5, -0.5], np.float32),
    "log_std": np.array([-1, 0, 0.5], np.float32),
    "choices": np.array([1, 2], np.float32),
}
ROW = np.array([0.5, -1], np.float32)
NEXT = np.array([2, 3], np.float32)


@dataclass(frozen=True)
class Form:
    recorder: Callable[[int, int, int, bool], NumpyRecorder]
    program: Callable[[Program, dict[str, Array], int], Any]

    def core(self, program: Program = CATEGORICAL, weights: dict[str, Array] = WEIGHTS, inputs: int = 2) -> Any:
        return self.program(program, weights, inputs).core

    def discrete(self, masked: bool = False) -> NumpyRecorder:
        return self.recorder(2, 3, 1, masked)

    def multi_discrete(self, masked: bool = False) -> NumpyRecorder:
        return self.recorder(2, 3, 2, masked)

    def continuous(self) -> NumpyRecorder:
        return self.recorder(2, 0, 3, False)


NUMPY = Form(NumpyRecorder, NumpyProgram)
IN_USE = Form(Recorder, NativeProgram if NATIVE else NumpyProgram)
NEEDS_NATIVE = pytest.mark.skipif(not NATIVE, reason="the native core is not installed, or RL4SYS_NUMPY=1")


@pytest.fixture(params=[NUMPY, pytest.param(IN_USE, marks=NEEDS_NATIVE)], ids=["numpy", "native"])
def form(request: pytest.FixtureRequest) -> Form:
    chosen: Form = request.param
    return chosen


def take_step(recorder: NumpyRecorder, core: Any, draws: Draws, row: Any = ROW, mask: Any = None) -> int:
    assert recorder.decide(core, row, mask, draws) is not None
    return recorder.commit()


def random_rows(count: int) -> Array:
    return np.random.default_rng(0).standard_normal((count, 2)).astype(np.float32)


def test_native_recorder_is_used_if_installed() -> None:
    assert (Recorder is NumpyRecorder) == (not NATIVE)


def test_recorder_accepts_core_of_snapshot_policy() -> None:
    spec = Spec({"state": Box((2,))}, Discrete(3))
    weights = {name: WEIGHTS[name] for name in ("w", "b")}
    policy, recorder = SnapshotPolicy(Snapshot(0, spec, CATEGORICAL, weights)), IN_USE.discrete()
    assert recorder.decide(policy.core, ROW, None, Draws(0)) == policy.decide(ROW, None, Draws(0))


def test_recorder_and_program_select_same_actions_from_same_draws(form: Form) -> None:
    ours, theirs, recorder = Draws(3), Draws(3), form.discrete()
    decisions = [recorder.decide(form.core(), row, None, ours) for row in random_rows(50)]
    assert decisions == [form.core().decide(row, None, theirs) for row in random_rows(50)]
    assert len({decision[0] for decision in decisions if decision}) == 3
    assert ours.state() == theirs.state() == {"key": 3, "counter": 50}


def test_continuous_recorder_and_program_select_same_action_from_same_draws(form: Form) -> None:
    decision = form.continuous().decide(form.core(GAUSSIAN), ROW, None, Draws(3))
    action, log_prob = form.core(GAUSSIAN).decide(ROW, None, Draws(3))
    assert decision is not None
    assert isinstance(decision[0], np.ndarray)
    assert (decision[0].dtype, decision[0].tolist(), decision[1]) == (np.float32, action.tolist(), log_prob)


@pytest.mark.parametrize("steps", [1, 5, 1000])
def test_recorded_steps_become_columns(form: Form, steps: int) -> None:
    recorder, core, draws, rows = form.discrete(), form.core(), Draws(0), random_rows(steps)
    decisions = []
    for number, row in enumerate(rows):
        decisions.append(recorder.decide(core, row, None, draws))
        assert recorder.commit() == number
        assert recorder.reward(number, number / 2)
    columns = recorder.take(NEXT, None)
    assert list(columns) == ["row", "action", "reward", "log_prob"]
    assert columns["row"].tolist() == [*rows.tolist(), NEXT.tolist()]
    assert [*zip(columns["action"].tolist(), columns["log_prob"].tolist(), strict=True)] == decisions
    assert columns["reward"].tolist() == [number / 2 for number in range(steps)]
    assert [column.dtype.name for column in columns.values()] == ["float32", "int64", "float32", "float32"]


def test_continuous_actions_are_recorded_as_vectors(form: Form) -> None:
    recorder, core, draws = form.continuous(), form.core(GAUSSIAN), Draws(0)
    decisions = []
    for row in random_rows(70):
        decisions.append(recorder.decide(core, row, None, draws))
        recorder.commit()
    columns = recorder.take(None, None)
    assert columns["action"].tolist() == [decision[0].tolist() for decision in decisions if decision]  # type: ignore[union-attr]
    assert (columns["action"].shape, columns["action"].dtype) == ((70, 3), np.float32)
    assert columns["log_prob"].tolist() == [decision[1] for decision in decisions if decision]


def test_missing_mask_is_recorded_as_all_true(form: Form) -> None:
    recorder, core, draws = form.discrete(masked=True), form.core(), Draws(0)
    only_two: Any = [False, False, True]
    for mask in (np.array(only_two), None, only_two):
        decision = recorder.decide(core, ROW, mask, draws)
        assert decision is not None
        assert mask is None or decision[0] == 2
        recorder.commit()
    columns = recorder.take(NEXT, np.array([True, True, False]))
    assert columns["mask"].dtype == np.bool_
    assert columns["mask"].tolist() == [only_two, [True] * 3, only_two, [True, True, False]]
    assert recorder.take(NEXT, None)["mask"].tolist() == [[True] * 3]


def test_final_mask_may_forbid_all_actions(form: Form) -> None:
    recorder = form.discrete(masked=True)
    take_step(recorder, form.core(), Draws(0))
    assert recorder.take(NEXT, np.zeros(3, np.bool_))["mask"].tolist() == [[True] * 3, [False] * 3]


def test_missing_final_row_repeats_last_row(form: Form) -> None:
    recorder, core, mask = form.discrete(masked=True), form.core(), np.array([True, False, True])
    take_step(recorder, core, Draws(0), NEXT)
    take_step(recorder, core, Draws(0), ROW, mask)
    columns = recorder.take(None, None)
    assert columns["row"].tolist() == [NEXT.tolist(), ROW.tolist(), ROW.tolist()]
    assert columns["mask"].tolist() == [[True] * 3, mask.tolist(), mask.tolist()]


def test_last_row_is_repeated_correctly_after_64_steps(form: Form) -> None:
    recorder, core, draws, rows = form.discrete(), form.core(), Draws(0), random_rows(64)
    for row in rows:
        take_step(recorder, core, draws, row)
    assert recorder.take(None, None)["row"].tolist() == [*rows.tolist(), rows[-1].tolist()]


def test_step_numbers_continue_in_next_recording(form: Form) -> None:
    recorder, core, draws = form.discrete(), form.core(), Draws(0)
    assert [take_step(recorder, core, draws) for _ in range(3)] == [0, 1, 2]
    assert (recorder.steps, recorder.offset, recorder.unrewarded) == (3, 0, 3)
    recorder.take(NEXT, None)
    assert (recorder.steps, recorder.offset, recorder.unrewarded) == (0, 3, 0)
    assert [take_step(recorder, core, draws, NEXT) for _ in range(2)] == [3, 4]
    assert recorder.reward(4, 7.0)
    assert not recorder.reward(2, 9.0)
    assert (recorder.steps, recorder.offset, recorder.unrewarded) == (2, 3, 1)
    columns = recorder.take(ROW, None)
    assert columns["row"].tolist() == [NEXT.tolist(), NEXT.tolist(), ROW.tolist()]
    assert columns["reward"].tolist() == [0.0, 7.0]
    assert recorder.offset == 5


def test_rewards_can_be_set_late_in_any_order_and_replaced(form: Form) -> None:
    recorder, core, draws = form.discrete(), form.core(), Draws(0)
    for _ in range(4):
        take_step(recorder, core, draws)
    waiting = []
    for step, value in ((2, 1.0), (0, 2), (2, np.float32(0.1)), (1, 0.0), (1, -1e-30)):
        assert recorder.reward(step, value)
        waiting.append(recorder.unrewarded)
    assert waiting == [3, 2, 2, 1, 1]
    assert recorder.take(None, None)["reward"].tolist() == np.array([2, -1e-30, 0.1, 0], np.float32).tolist()


def test_reward_of_earlier_recording_does_not_change_next_recording(form: Form) -> None:
    recorder, core, draws = form.discrete(), form.core(), Draws(0)
    for _ in range(2):
        recorder.reward(take_step(recorder, core, draws), 5.0)
    recorder.take(None, None)
    take_step(recorder, core, draws)
    assert not recorder.reward(0, 6.0)
    assert recorder.unrewarded == 1
    assert recorder.take(None, None)["reward"].tolist() == [0.0]


def test_new_decision_replaces_pending_decision(form: Form) -> None:
    recorder, core, draws = form.discrete(), form.core(), Draws(1)
    recorder.decide(core, NEXT, None, draws)
    decision = recorder.decide(core, ROW, None, draws)
    recorder.commit()
    columns = recorder.take(None, None)
    assert columns["row"].tolist() == [ROW.tolist()] * 2
    assert (columns["action"][0], columns["log_prob"][0]) == decision


@pytest.mark.parametrize("reason", ["limit", "nan", "policy"])
@pytest.mark.parametrize("program", [CATEGORICAL, GAUSSIAN], ids=["discrete", "continuous"])
def test_failed_decision_keeps_pending_decision(form: Form, program: Program, reason: str) -> None:
    recorder = form.discrete() if program is CATEGORICAL else form.continuous()
    core, draws = form.core(program), Draws(1)
    decision = recorder.decide(core, ROW, None, draws)
    assert decision is not None
    if reason == "limit":
        recorder.limit = 0
    nan_core = form.core(program, {**WEIGHTS, "w": WEIGHTS["w"] * np.inf})
    row = np.array([np.nan, 0], np.float32) if reason == "nan" else NEXT
    assert recorder.decide(nan_core if reason == "policy" else core, row, None, draws) is None
    assert recorder.commit() == 0
    columns = recorder.take(None, None)
    assert columns["row"].tolist() == [ROW.tolist()] * 2
    assert np.array_equal(columns["action"][0], decision[0])
    assert columns["log_prob"][0] == decision[1]


def test_decide_returns_none_without_a_draw_at_step_limit(form: Form) -> None:
    recorder, core, draws = form.discrete(), form.core(), Draws(0)
    assert recorder.limit > 10**9
    recorder.limit = 2
    assert recorder.limit == 2
    assert [take_step(recorder, core, draws) for _ in range(2)] == [0, 1]
    assert recorder.decide(core, ROW, None, draws) is None
    assert (recorder.steps, draws.counter) == (2, 2)
    recorder.take(None, None)
    assert take_step(recorder, core, draws) == 2
    recorder.limit = 1
    assert recorder.decide(core, ROW, None, draws) is None
    with pytest.raises(SpecError, match=r"the limit must be in 0\.\.2\*\*64-1, got -1"):
        recorder.limit = -1


@pytest.mark.parametrize("row", [[np.nan, 0], [0, np.inf], [-np.inf, 0], [1e300, 0]])
def test_non_finite_row_gives_no_decision(form: Form, row: list[float]) -> None:
    recorder, draws = form.discrete(), Draws(0)
    assert recorder.decide(form.core(), row, None, draws) is None
    with np.errstate(over="ignore"):
        assert recorder.decide(form.core(), np.array(row, np.float32), None, draws) is None
    assert draws.counter == 0
    with pytest.raises(SpecError, match="no decision"):
        recorder.commit()


def test_commit_requires_new_decision(form: Form) -> None:
    recorder = form.discrete()
    for _ in range(2):
        with pytest.raises(SpecError, match="call request_for_action before add_to_trajectory"):
            recorder.commit()
        take_step(recorder, form.core(), Draws(0))
    assert recorder.steps == 2


def test_invalid_step_or_reward_is_rejected(form: Form) -> None:
    recorder, core = form.discrete(), form.core()
    take_step(recorder, core, Draws(0))
    recorder.decide(core, ROW, None, Draws(0))
    with pytest.raises(SpecError, match="cannot set the reward of step 1: the trajectory has 1 steps, numbered from 0"):
        recorder.reward(1, 0.0)
    with pytest.raises(SpecError, match=r"the step must be in 0\.\.2\*\*64-1, got -1"):
        recorder.reward(-1, 0.0)
    for value in (np.nan, np.inf, -np.inf, 1e39):
        with pytest.raises(NumericalError, match="a reward must be a finite float32, got"):
            recorder.reward(0, value)
    with pytest.raises(TypeError):
        recorder.reward(0, None)  # type: ignore[arg-type]
    assert recorder.unrewarded == 1


def test_empty_recording_needs_final_row(form: Form) -> None:
    columns = form.discrete(masked=True).take(ROW, None)
    shapes = {name: column.shape for name, column in columns.items()}
    assert shapes == {"row": (1, 2), "mask": (1, 3), "action": (0,), "reward": (0,), "log_prob": (0,)}
    assert columns["row"].tolist() == [ROW.tolist()]
    continuous = form.continuous().take(ROW, None)
    assert (continuous["action"].shape, continuous["action"].dtype) == ((0, 3), np.float32)
    with pytest.raises(SpecError, match="a recording without steps needs a final observation; none was given"):
        form.discrete().take(None, None)


@pytest.mark.parametrize(
    ("row", "mask", "error", "message"),
    [
        (np.array([np.nan, 0]), None, NumericalError, "the final observation contains NaN or infinity"),
        (np.zeros(3), None, SpecError, r"the row is float64 of shape \(3,\); expected float32 of shape \(2,\)"),
        (ROW, np.ones(2, np.bool_), SpecError, r"the mask is bool of shape \(2,\); expected bool of shape \(3,\)"),
        (None, np.ones(3, np.bool_), SpecError, "a mask was given without a final observation"),
    ],
)
def test_invalid_final_row_changes_nothing(
    form: Form, row: Any, mask: Any, error: type[RL4SysError], message: str
) -> None:
    recorder, core = form.discrete(masked=True), form.core()
    recorder.reward(take_step(recorder, core, Draws(0)), 1.5)
    recorder.decide(core, NEXT, None, Draws(0))
    with pytest.raises(error, match=message):
        recorder.take(row, mask)
    assert recorder.commit() == 1
    assert recorder.take(None, None)["reward"].tolist() == [1.5, 0.0]


def test_take_discards_pending_decision(form: Form) -> None:
    recorder = form.discrete()
    recorder.decide(form.core(), ROW, None, Draws(0))
    recorder.take(NEXT, None)
    with pytest.raises(SpecError, match="no decision"):
        recorder.commit()


def test_last_steps_can_be_dropped(form: Form) -> None:
    recorder, core, draws, rows = form.discrete(), form.core(), Draws(0), random_rows(5)
    for row in rows:
        take_step(recorder, core, draws, row)
    recorder.reward(1, 1.0)
    recorder.reward(4, 4.0)
    recorder.decide(core, ROW, None, draws)
    recorder.drop(2)
    assert (recorder.steps, recorder.offset, recorder.unrewarded) == (3, 0, 2)
    with pytest.raises(SpecError, match="no decision"):
        recorder.commit()
    with pytest.raises(SpecError, match="cannot drop the last 4 steps: the recording has 3"):
        recorder.drop(4)
    assert take_step(recorder, core, draws) == 3
    assert recorder.unrewarded == 3
    columns = recorder.take(NEXT, None)
    assert columns["row"].tolist() == [*rows[:3].tolist(), ROW.tolist(), NEXT.tolist()]
    assert columns["reward"].tolist() == [0, 1, 0, 0]


def test_multi_discrete_actions_are_recorded(form: Form) -> None:
    recorder, core, draws, rows = form.multi_discrete(masked=True), form.core(MULTI_DISCRETE), Draws(3), random_rows(40)
    masks = np.array([[True, row % 3 > 0, True] for row in range(40)])
    program, expected_draws = NumpyProgram(MULTI_DISCRETE, WEIGHTS, 2), Draws(3)
    for row, mask in zip(rows, masks, strict=True):
        decision = recorder.decide(core, row, mask, draws)
        assert decision is not None
        action, log_prob = decision
        expected, expected_log_prob = program.decide(row, mask, expected_draws)
        assert isinstance(action, np.ndarray)
        assert (action.dtype, action.tolist()) == (np.int64, np.asarray(expected).tolist())
        assert log_prob == pytest.approx(expected_log_prob, abs=1e-6)
        recorder.commit()
        action[:] = 7
    columns = recorder.take(NEXT, None)
    assert (columns["action"].dtype, columns["action"].shape) == (np.int64, (40, 2))
    assert set(columns["action"][:, 1].tolist()) == {0, 1}
    assert (columns["action"][:, 0] == 0).all()
    assert columns["mask"].tolist() == [*masks.tolist(), [True] * 3]


def test_policy_with_different_action_dimensions_is_rejected(form: Form) -> None:
    with pytest.raises(
        SpecError, match=r"the policy has .* 3 discrete actions; the recorder has .* 3 discrete actions in 2 parts"
    ):
        form.multi_discrete().decide(form.core(), ROW, None, Draws(0))
    with pytest.raises(
        SpecError, match=r"the policy has .* 3 discrete actions in 2 parts; the recorder has .* 3 discrete actions$"
    ):
        form.discrete().decide(form.core(MULTI_DISCRETE), ROW, None, Draws(0))


def test_mask_is_rejected_if_spec_has_no_mask(form: Form) -> None:
    draws = Draws(0)
    for recorder, program in ((form.discrete(), CATEGORICAL), (form.continuous(), GAUSSIAN)):
        for mask in (np.ones(3, np.bool_), np.ones(0, np.bool_)):
            with pytest.raises(SpecError, match="a mask was given, but the spec has no mask among its observations"):
                recorder.decide(form.core(program), ROW, mask, draws)
            with pytest.raises(SpecError, match="a mask was given, but the spec has no mask"):
                recorder.take(ROW, mask)
    assert draws.counter == 0


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros(3, np.bool_), "allows none of the 3 actions; at least one must be legal"),
        (np.ones(4, np.bool_), r"the mask is bool of shape \(4,\); expected bool of shape \(3,\)"),
        (np.ones(3), r"the mask is float64 of shape \(3,\); expected bool of shape \(3,\)"),
    ],
)
def test_invalid_mask_is_rejected_before_any_draw(form: Form, mask: Any, message: str) -> None:
    recorder, draws = form.discrete(masked=True), Draws(0)
    with pytest.raises(SpecError, match=message):
        recorder.decide(form.core(), ROW, mask, draws)
    assert draws.counter == 0


@pytest.mark.parametrize(
    ("sizes", "program", "message"),
    [
        ((3, 3, 1), CATEGORICAL, r"rows of 2 numbers|the rows are float32 of shape \(0, 3\)"),
        (
            (2, 4, 1),
            CATEGORICAL,
            "the policy has rows of 2 numbers and 3 discrete actions; the recorder has .* 4 discrete actions",
        ),
        ((2, 0, 3), CATEGORICAL, "has .* 3 discrete actions; the recorder has .* continuous actions of size 3"),
        ((2, 3, 1), GAUSSIAN, "the policy has .* continuous actions of size 3; the recorder has .* 3 discrete actions"),
        ((2, 0, 2), GAUSSIAN, "the policy has .* actions of size 3; the recorder has .* actions of size 2"),
    ],
)
def test_policy_with_different_row_or_action_size_is_rejected(
    form: Form, sizes: tuple[int, int, int], program: Program, message: str
) -> None:
    recorder, draws = form.recorder(*sizes, False), Draws(0)
    for _ in range(2):
        with pytest.raises(SpecError, match=message):
            recorder.decide(form.core(program), np.zeros(sizes[0], np.float32), None, draws)
    assert draws.counter == 0


def test_policy_can_change_between_steps(form: Form) -> None:
    recorder, draws = form.discrete(), Draws(0)
    one, other = form.core(), form.core(CATEGORICAL.greedy())
    steps = [take_step(recorder, core, draws) for core in (one, other, one, other)]
    columns = recorder.take(None, None)
    assert steps == [0, 1, 2, 3]
    assert columns["log_prob"][1] == columns["log_prob"][3] == 0.0
    assert columns["log_prob"][0] < 0.0


@pytest.mark.parametrize(
    "row",
    [
        [0.5, -1],
        (0.5, -1.0),
        ROW.astype(np.float64),
        ROW.astype(">f4"),
        ROW.reshape(2, 1),
        ROW.astype(np.float64).reshape(1, 2, 1),
        np.repeat(ROW, 2)[::2],
        [[0.5], [-1]],
        torch.tensor(ROW),
        torch.tensor(ROW, requires_grad=True),
        torch.tensor(ROW, dtype=torch.float64).reshape(1, 2).requires_grad_(),
    ],
    ids=lambda row: type(row).__name__,
)
def test_all_observation_types_are_accepted(form: Form, row: Any) -> None:
    recorder, core = form.discrete(), form.core()
    assert recorder.decide(core, row, None, Draws(1)) == core.decide(ROW, None, Draws(1))
    recorder.commit()
    assert recorder.take(row, None)["row"].tolist() == [ROW.tolist()] * 2


def test_observation_is_flattened_in_c_order(form: Form) -> None:
    core = form.core(Program((), Operation("argmax")), {}, 6)
    for order in ("C", "F"):
        recorder = form.recorder(6, 6, 1, False)
        take_step(recorder, core, Draws(0), np.arange(6, dtype=np.float32).reshape(2, 3).copy(order))
        assert recorder.take(None, None)["row"].tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (np.zeros(3, np.float32), r"the row is float32 of shape \(3,\); expected float32 of shape \(2,\)"),
        (np.zeros((2, 2)), r"the row is float64 of shape \(2, 2\)"),
        (np.zeros(2, np.bool_), r"the row is bool of shape \(2,\)"),
        (np.zeros(2, np.complex64), r"the row is complex64 of shape \(2,\)"),
        ([[1.0, 2.0], [3.0]], "the row is nested with unequal lengths"),
        ([], "the row is .* of shape"),
        (None, "the row is object of shape"),
    ],
)
def test_observation_of_wrong_type_or_size_is_rejected(form: Form, row: Any, message: str) -> None:
    draws = Draws(0)
    with pytest.raises(SpecError, match=message):
        form.discrete().decide(form.core(), row, None, draws)
    assert draws.counter == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 3, 1, False), "a recorder needs rows and actions of at least 1 number, got 0 and 1"),
        ((2, 0, 0, False), "a recorder needs rows and actions of at least 1 number, got 2 and 0"),
        (
            (2, 3, 4, False),
            "each part of a discrete action needs at least 1 action, got 4 parts and 3 actions in total",
        ),
        ((2, 0, 3, True), "continuous actions take no mask"),
        ((-1, 3, 1, False), r"the input size must be in 0\.\.2\*\*64-1, got -1"),
    ],
)
def test_invalid_row_or_action_sizes_are_rejected(form: Form, sizes: tuple[int, int, int, bool], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        form.recorder(*sizes)


def test_recorded_arrays_are_independent_copies(form: Form) -> None:
    recorder, core, draws = form.continuous(), form.core(GAUSSIAN), Draws(0)
    row, last = ROW.copy(), NEXT.copy()
    decision = recorder.decide(core, row, None, draws)
    assert decision is not None
    assert isinstance(decision[0], np.ndarray)
    drawn = decision[0].tolist()
    row[:] = 0
    decision[0][:] = 0
    recorder.commit()
    columns = recorder.take(last, None)
    last[:] = 0
    take_step(recorder, core, draws, np.zeros(2, np.float32))
    again = recorder.take(None, None)
    assert columns["row"].tolist() == [ROW.tolist(), NEXT.tolist()]
    assert columns["action"].tolist() == [drawn]
    for column in (*columns.values(), *again.values()):
        np.add(column, 1, out=column)
    assert take_step(recorder, core, draws) == 2
    assert recorder.take(None, None)["row"].tolist() == [ROW.tolist()] * 2


# Programs without a body: both implementations get bit-identical head inputs and take the same branches.
KINDS: dict[str, tuple[Program, int, tuple[int, int, int, bool]]] = {
    "discrete": (Program((), Operation("categorical")), 3, (3, 3, 1, False)),
    "masked": (Program((), Operation("categorical")), 3, (3, 3, 1, True)),
    "continuous": (Program((), Operation("gaussian", ("log_std",))), 3, (3, 0, 3, False)),
}
NUMBER = st.sampled_from([*np.random.default_rng(0).standard_normal(20).tolist(), 0, np.nan, np.inf, 1e300])
FINITE = st.floats(-3, 3, width=32)
ROWS = st.one_of(
    st.tuples(FINITE, FINITE, FINITE),
    st.tuples(FINITE, FINITE, FINITE).map(lambda row: np.array(row, np.float32)),
    st.tuples(NUMBER, FINITE, FINITE),
    st.just((1.0, 2.0)),
)
MASKS = st.one_of(st.none(), st.tuples(st.booleans(), st.booleans(), st.just(True)).map(np.array))
OPERATIONS = st.one_of(
    st.tuples(st.just("decide"), ROWS, MASKS),
    st.tuples(st.just("step"), ROWS, MASKS),
    st.tuples(st.just("step"), ROWS, st.none()),
    st.tuples(st.just("commit")),
    st.tuples(st.just("reward"), st.integers(-1, 12), NUMBER),
    st.tuples(st.just("take"), st.one_of(st.none(), ROWS), MASKS),
    st.tuples(st.just("take"), st.none(), st.none()),
    st.tuples(st.just("drop"), st.integers(0, 3)),
    st.tuples(st.just("limit"), st.integers(0, 6)),
)


@dataclass
class RecorderUnderTest:
    """One recorder implementation, to which a sequence of operations is applied."""

    recorder: NumpyRecorder
    core: Any
    draws: Draws

    def apply(self, name: str, *arguments: Any) -> Any:
        try:
            return self._apply(name, *arguments)
        except NumericalError:
            return NumericalError
        except SpecError as problem:
            return str(problem)

    def _apply(self, name: str, *arguments: Any) -> Any:
        if name == "limit":
            self.recorder.limit = arguments[0]
            return None
        if name == "decide":
            return self.recorder.decide(self.core, *arguments, self.draws)
        if name == "step":
            decision = self.recorder.decide(self.core, *arguments, self.draws)
            return None if decision is None else (*decision, self.recorder.commit())
        return getattr(self.recorder, name)(*arguments)

    def state(self) -> tuple[int, int, int, int, dict[str, int]]:
        recorder = self.recorder
        return recorder.steps, recorder.offset, recorder.unrewarded, recorder.limit, self.draws.state()


def assert_equal(expected: Any, got: Any) -> None:
    if isinstance(expected, dict):
        assert list(expected) == list(got)
        for name, column in expected.items():
            assert (column.dtype, column.shape) == (got[name].dtype, got[name].shape)
            tolerance = 1e-6 if column.dtype == np.float32 and name in ("log_prob", "action") else 0.0
            np.testing.assert_allclose(got[name], column, rtol=0, atol=tolerance)
    elif isinstance(expected, tuple):
        assert [type(value) for value in expected] == [type(value) for value in got]
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
    else:
        assert got == expected


@NEEDS_NATIVE
@settings(max_examples=300, deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=40), key=st.integers(0, 2**64 - 1))
@pytest.mark.parametrize("kind", list(KINDS))
def test_both_recorders_behave_identically(kind: str, operations: list[tuple[Any, ...]], key: int) -> None:
    program, inputs, sizes = KINDS[kind]
    reference, native = (
        RecorderUnderTest(form.recorder(*sizes), form.core(program, WEIGHTS, inputs), Draws(key))
        for form in (NUMPY, IN_USE)
    )
    assert type(reference.recorder) is not type(native.recorder)
    for operation in operations:
        assert_equal(reference.apply(*operation), native.apply(*operation))
        assert reference.state() == native.state()
    final = np.zeros(3, np.float32)
    assert_equal(reference.recorder.take(final, None), native.recorder.take(final, None))
