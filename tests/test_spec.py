"""Validation and JSON format of specs, and validation of trajectories."""

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
    allows_some_action,
    encoded_size,
    first_allowed,
    in_range,
    is_allowed,
    mask_box,
)
from rl4sys.trajectory import Trajectory

SPEC = Spec(
    {"state": Box((2,), low=(-1.0, -math.inf), high=(1.0,)), "mask": Box((3,), "bool", (0.0,), (1.0,))}, Discrete(3)
)


MULTI_DISCRETE = MultiDiscrete((3, 1, 2))


@pytest.mark.parametrize("spec", [SPEC, Spec({"state": Box((2,)), "mask": mask_box(MULTI_DISCRETE)}, MULTI_DISCRETE)])
def test_spec_round_trips_through_json(spec: Spec) -> None:
    import json

    text = json.dumps(spec.to_json(), allow_nan=False)
    assert Spec.from_json(json.loads(text)) == spec


def test_multi_discrete_choices_are_a_list_in_json() -> None:
    assert (MULTI_DISCRETE.shape, MULTI_DISCRETE.dtype, encoded_size(MULTI_DISCRETE)) == ((3,), "int64", 6)
    assert Spec({"state": Box((2,))}, MULTI_DISCRETE).to_json()["action"] == {
        "kind": "multi_discrete",
        "choices": [3, 1, 2],
    }


@pytest.mark.parametrize(
    "choices", [[], [3, 0], [3, -1], [2**63], [2**62, 2**62], 3, "12", [1.5], [[2]], None, {"a": 2}, [10**400]]
)
def test_invalid_multi_discrete_is_rejected(choices: object) -> None:
    value = {**SPEC.to_json(), "action": {"kind": "multi_discrete", "choices": choices}}
    del value["observation"]["mask"]
    with pytest.raises(SpecError):
        Spec.from_json(value)


def test_multi_discrete_observation_is_rejected() -> None:
    value = {**SPEC.to_json(), "action": {"kind": "discrete", "choices": 3}}
    value["observation"]["state"] = {"kind": "multi_discrete", "choices": [2]}
    with pytest.raises(SpecError, match="observations must be boxes"):
        Spec.from_json(value)


def test_multi_discrete_mask_covers_every_dimension() -> None:
    mask = np.array([[False, True, True, True, False, True], [True, True, True, True, True, True]])
    assert allows_some_action(MULTI_DISCRETE, mask)
    assert not allows_some_action(MULTI_DISCRETE, np.array([[True, True, True, False, True, True]]))
    assert is_allowed(MULTI_DISCRETE, np.array([[1, 0, 1], [0, 0, 0]]), mask)
    assert not is_allowed(MULTI_DISCRETE, np.array([[1, 0, 0], [0, 0, 0]]), mask)
    assert first_allowed(MULTI_DISCRETE, mask[0]).tolist() == [1, 0, 1]
    assert first_allowed(Discrete(3), mask[0, :3]).tolist() == 1
    assert in_range(MULTI_DISCRETE, np.array([[2, 0, 1]]))
    for wrong in ([3, 0, 1], [2, 1, 1], [2, 0, -1]):
        assert not in_range(MULTI_DISCRETE, np.array([wrong]))
    with pytest.raises(SpecError, match=r"the mask is bool of shape \(3,\); expected bool of shape \(6,\)"):
        Spec({"state": Box((2,)), "mask": mask_box(Discrete(3))}, MULTI_DISCRETE)


@pytest.mark.parametrize(
    "broken", [{}, {"observation": 3, "action": {}}, {"observation": {}, "action": {"kind": "box"}}]
)
def test_invalid_spec_is_rejected(broken: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="invalid spec: "):
        Spec.from_json(broken)


def test_continuous_actions_are_clipped_to_the_box() -> None:
    box = Box((2,), low=(-1.0, 0.0), high=(1.0, 5.0))
    assert box.legal(np.array([[-7.0, 9.0], [0.5, 1.0]], np.float32)).tolist() == [[-1.0, 5.0], [0.5, 1.0]]


def test_bounds_must_match_the_shape() -> None:
    with pytest.raises(SpecError, match=r"low has 3 values; a box of shape \(2,\) takes 1 or 2"):
        Box((2,), low=(0.0, 0.0, 0.0))


def test_mask_needs_discrete_actions() -> None:
    with pytest.raises(SpecError, match="an action mask needs a discrete action space"):
        Spec({"state": Box((1,)), "mask": Box((3,), "bool")}, Box((1,)))


def test_trajectory_has_one_observation_more_than_steps() -> None:
    columns = {"obs.state": np.zeros((4, 2)), "action": np.zeros(3, int), "reward": np.zeros(3)}
    assert len(Trajectory(0, columns)) == 3
    with pytest.raises(SpecError, match=r"column 'obs\.state' of a trajectory of 3 steps has 3 rows; expected 4"):
        Trajectory(0, {**columns, "obs.state": np.zeros((3, 2))})


def test_spec_without_observations_is_rejected() -> None:
    with pytest.raises(SpecError, match="the spec has no observation besides the mask"):
        Spec({"mask": Box((3,), "bool")}, Discrete(3))


@pytest.mark.parametrize("length", [-1, 2**63, 10**30])
def test_invalid_axis_length_is_rejected(length: int) -> None:
    with pytest.raises(SpecError, match="every axis length must be at least 0 and below"):
        Box((length,))
