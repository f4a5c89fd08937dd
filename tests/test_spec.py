"""What client and learner agree on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rl4sys.errors import SpecError
from rl4sys.spec import (
    Box,
    Discrete,
    MultiDiscrete,
    Spec,
    first_permitted,
    in_range,
    leaves_choice,
    mask_box,
    numbers_of,
    permitted,
)
from rl4sys.trajectory import Trajectory

SPEC = Spec(
    {"state": Box((2,), low=(-1.0, -math.inf), high=(1.0,)), "mask": Box((3,), "bool", (0.0,), (1.0,))}, Discrete(3)
)


SEVERAL = MultiDiscrete((3, 1, 2))


@pytest.mark.parametrize("spec", [SPEC, Spec({"state": Box((2,)), "mask": mask_box(SEVERAL)}, SEVERAL)])
def test_a_spec_survives_json(spec: Spec) -> None:
    import json

    text = json.dumps(spec.to_json(), allow_nan=False)
    assert Spec.from_json(json.loads(text)) == spec


def test_several_choices_are_a_list_of_them() -> None:
    assert (SEVERAL.shape, SEVERAL.dtype, numbers_of(SEVERAL)) == ((3,), "int64", 6)
    assert Spec({"state": Box((2,))}, SEVERAL).to_json()["action"] == {"kind": "multi_discrete", "choices": [3, 1, 2]}


@pytest.mark.parametrize(
    "choices", [[], [3, 0], [3, -1], [2**63], [2**62, 2**62], 3, "12", [1.5], [[2]], None, {"a": 2}, [10**400]]
)
def test_several_choices_that_nobody_could_make_are_refused(choices: object) -> None:
    value = {**SPEC.to_json(), "action": {"kind": "multi_discrete", "choices": choices}}
    del value["observation"]["mask"]
    with pytest.raises(SpecError):
        Spec.from_json(value)


def test_several_choices_are_no_observation() -> None:
    value = {**SPEC.to_json(), "action": {"kind": "discrete", "choices": 3}}
    value["observation"]["state"] = {"kind": "multi_discrete", "choices": [2]}
    with pytest.raises(SpecError, match="observations are boxes"):
        Spec.from_json(value)


def test_a_mask_of_several_choices_speaks_of_every_part() -> None:
    mask = np.array([[False, True, True, True, False, True], [True, True, True, True, True, True]])
    assert leaves_choice(SEVERAL, mask)
    assert not leaves_choice(SEVERAL, np.array([[True, True, True, False, True, True]]))
    assert permitted(SEVERAL, np.array([[1, 0, 1], [0, 0, 0]]), mask)
    assert not permitted(SEVERAL, np.array([[1, 0, 0], [0, 0, 0]]), mask)
    assert first_permitted(SEVERAL, mask[0]).tolist() == [1, 0, 1]
    assert first_permitted(Discrete(3), mask[0, :3]).tolist() == 1
    assert in_range(SEVERAL, np.array([[2, 0, 1]]))
    for wrong in ([3, 0, 1], [2, 1, 1], [2, 0, -1]):
        assert not in_range(SEVERAL, np.array([wrong]))
    with pytest.raises(SpecError, match=r"the mask is bool of shape \(3,\); it should be bool of \(6,\)"):
        Spec({"state": Box((2,)), "mask": mask_box(Discrete(3))}, SEVERAL)


@pytest.mark.parametrize(
    "broken", [{}, {"observation": 3, "action": {}}, {"observation": {}, "action": {"kind": "box"}}]
)
def test_what_is_no_spec_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="not the description of a spec"):
        Spec.from_json(broken)


def test_continuous_actions_are_made_legal_by_the_nearest_point() -> None:
    box = Box((2,), low=(-1.0, 0.0), high=(1.0, 5.0))
    assert box.legal(np.array([[-7.0, 9.0], [0.5, 1.0]], np.float32)).tolist() == [[-1.0, 5.0], [0.5, 1.0]]


def test_bounds_must_match_the_shape() -> None:
    with pytest.raises(SpecError, match=r"low has 3 values; a box of shape \(2,\) takes 1 or 2"):
        Box((2,), low=(0.0, 0.0, 0.0))


def test_a_mask_needs_discrete_actions() -> None:
    with pytest.raises(SpecError, match="an action mask needs a discrete action space"):
        Spec({"state": Box((1,)), "mask": Box((3,), "bool")}, Box((1,)))


def test_a_trajectory_has_one_observation_more_than_steps() -> None:
    columns = {"obs.state": np.zeros((4, 2)), "action": np.zeros(3, int), "reward": np.zeros(3)}
    assert len(Trajectory(0, columns)) == 3
    with pytest.raises(SpecError, match=r"column obs\.state of a trajectory of 3 steps has 3 rows; expected 4"):
        Trajectory(0, {**columns, "obs.state": np.zeros((3, 2))})


def test_a_policy_needs_something_to_see() -> None:
    with pytest.raises(SpecError, match="a policy needs something to see"):
        Spec({"mask": Box((3,), "bool")}, Discrete(3))


@pytest.mark.parametrize("length", [-1, 2**63, 10**30])
def test_an_axis_that_no_array_can_have_is_refused(length: int) -> None:
    with pytest.raises(SpecError, match="no axis can be shorter than 0, or"):
        Box((length,))
