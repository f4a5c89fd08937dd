"""The check of an exported model finds every output that differs from the policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rl4sys.errors import ExportError
from rl4sys.policy.export_check import check_model
from rl4sys.policy.export_plan import ExportPlan
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation
from rl4sys.spec import Array, Box, Columns, Discrete

from .exported import golden, single

Change = Callable[[Array], Array]


def check(plan: ExportPlan, name: str = "", change: Change = lambda values: values) -> None:
    """Check a model that is the reference itself, with one changed output."""
    seen: list[Columns] = []

    def run(inputs: Columns) -> Columns:
        seen.append(inputs)
        outputs = reference(plan, inputs)
        return outputs | ({name: change(outputs[name])} if name else {})

    check_model(plan, run, "test")
    assert [len(inputs["observation"]) for inputs in seen] == [32, 1]
    assert seen[0]["observation"].std() > 0.1


def reference(plan: ExportPlan, inputs: Columns) -> dict[str, Array]:
    program = NumpyProgram(plan.program, plan.weights, plan.row_size)
    values, memory = program.head_input(inputs["observation"], inputs.get("mask"), inputs.get("memory"))
    outputs = {plan.parameters[0]: values[:, : plan.elements]}
    if isinstance(plan.spec.action, Box):
        outputs |= {"log_std": np.broadcast_to(plan.log_std, values.shape)} if plan.log_std is not None else {}
        outputs["action"] = plan.spec.action.legal(values)
    else:
        legal = inputs.get("mask", np.ones(values.shape, np.bool_))
        outputs["action"] = np.where(legal, values, -np.inf).argmax(axis=1)
    return outputs | ({"next_memory": memory} if plan.memory_size else {})


@pytest.mark.parametrize("case", ["gaussian", "categorical_masked", "gru", "lstm", "mode"])
def test_model_with_equal_outputs_is_accepted(case: str) -> None:
    check(ExportPlan(golden(case)))


@pytest.mark.parametrize(
    ("case", "name"),
    [("gaussian", "mean"), ("gaussian", "log_std"), ("mode", "action"), ("gru", "logits"), ("lstm", "next_memory")],
)
def test_difference_above_tolerance_is_rejected(case: str, name: str) -> None:
    def moved(by: float) -> Change:
        return lambda values: (
            values + np.float32(by * max(1.0, np.abs(values).max())) * (np.arange(len(values)) == 0)[:, None]
        )

    plan = ExportPlan(golden(case))
    check(plan, name, moved(5e-6))
    with pytest.raises(ExportError, match=f"the test model differs from the policy: {name} by 2.0e-05"):
        check(plan, name, moved(2e-5))


def test_policy_that_amplifies_rounding_errors_has_a_larger_tolerance() -> None:
    # Layer normalization of values around 100 with a standard deviation of 0.03 loses 3 of 7 digits.
    weights = {"w": 0.01 * np.random.default_rng(2).standard_normal((16, 8)), "b": np.full(16, 100.0)}
    weights |= {"scale": np.ones(16), "shift": np.zeros(16)}
    body = Operation("linear", ("w", "b")), Operation("layer_norm", ("scale", "shift"), {"epsilon": 1e-5})
    plan = ExportPlan(single(Operation("mode"), Box((16,)), Box((8,)), *body, **weights))
    check(plan, "action", lambda actions: actions + np.float32(3e-4))
    with pytest.raises(ExportError, match="action by"):
        check(plan, "action", lambda actions: actions + np.float32(1e-2))


def test_worse_or_illegal_action_is_rejected() -> None:
    for case, change in (
        ("categorical", lambda actions: (actions + 1) % 4),
        ("categorical_masked", lambda actions: (actions + 1) % 7),
        ("argmax", lambda actions: actions + 4),
    ):
        with pytest.raises(ExportError, match="differs from the policy: action by"):
            check(ExportPlan(golden(case)), "action", change)


def test_illegal_action_with_the_same_score_is_rejected() -> None:
    linear = Operation("linear", ("w", "b"))
    plan = ExportPlan(
        single(Operation("argmax"), Discrete(3), Box((2,)), linear, masked=True, w=np.zeros((3, 2)), b=np.zeros(3))
    )
    check(plan)
    with pytest.raises(ExportError, match="action by inf"):
        check(plan, "action", lambda actions: (actions + 1) % 3)


def test_any_action_with_the_largest_score_is_accepted() -> None:
    snapshot = single(
        Operation("argmax"), Discrete(3), Box((2,)), Operation("linear", ("w", "b")), w=np.zeros((3, 2)), b=[1, 2, 2]
    )
    check(ExportPlan(snapshot), "action", lambda actions: np.full_like(actions, 2))
    with pytest.raises(ExportError, match=r"action by 5\.0e-01"):
        check(ExportPlan(snapshot), "action", np.zeros_like)


@pytest.mark.parametrize("change", [lambda actions: actions.astype(np.int32), lambda actions: actions[:, None]])
def test_output_of_another_type_or_shape_is_rejected(change: Change) -> None:
    with pytest.raises(ExportError, match="returns action as int"):
        check(ExportPlan(golden("categorical")), "action", change)


def test_random_rows_are_near_the_mean_or_within_the_observation_bounds() -> None:
    seen: list[Array] = []

    def rows_of(plan: ExportPlan) -> Array:
        def run(inputs: Columns) -> Columns:
            seen.append(inputs["observation"])
            return reference(plan, inputs)

        check_model(plan, run, "test")
        return seen[-2]

    normalize = Operation("normalize", ("mean", "scale"), {"limit": 10.0})
    mean, scale = [1e4, -50], [0.01, 0]
    around = rows_of(ExportPlan(single(Operation("mode"), Box((2,)), Box((2,)), normalize, mean=mean, scale=scale)))
    np.testing.assert_allclose(around.mean(axis=0), mean, rtol=0.02)
    np.testing.assert_allclose(around.std(axis=0), [100, 1], rtol=0.3)
    pixels = rows_of(ExportPlan(single(Operation("mode"), Box((2,)), Box((2,), "uint8"))))
    assert pixels.min() >= 0
    assert 200 < pixels.max() <= 255
