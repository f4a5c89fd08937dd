"""Bit-exact comparison of trees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl4sys.segments import Segment
from rl4sys.verification.difference import Difference, Location, compare


def differences(a: Any, b: Any) -> list[Difference]:
    return [difference for difference in compare(a, b, Location(7, "checkpoint")) if difference is not None]


def test_equal_trees_have_no_differences() -> None:
    tree = {"a": np.array([1.0, math.nan]), "b": [1, "x", None, math.nan], "c": {"d": True}}
    leaves = list(compare(tree, {**tree, "a": tree["a"].copy()}, Location(7, "checkpoint")))
    assert leaves == [None] * 6


def test_array_difference_reports_count_and_maximum() -> None:
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[0, 1], b[1, 2] = 0.5, -2.0
    [difference] = differences({"w": a}, {"w": b})
    assert (difference.name, difference.elements, difference.of_elements, difference.largest) == ("w", 2, 6, 2.0)
    assert difference.describe() == "w: 2 of 6 elements differ, by at most 2"


def test_zero_differs_from_minus_zero() -> None:
    assert differences(np.array([0.0]), np.array([-0.0]))[0].elements == 1


def test_different_shapes_and_types_are_differences() -> None:
    assert differences(np.zeros(2), np.zeros(3))[0].describe() == (
        ": float64 of shape (2,) recorded, float64 of shape (3,) repeated"
    )
    assert differences(np.zeros(2, np.int64), np.zeros(2))
    assert differences({"x": True}, {"x": np.array([True])})


def test_missing_leaf_is_reported_as_absent() -> None:
    [removed, added] = differences({"removed": 1}, {"added": {"inner": 2}})
    assert (removed.name, removed.recorded, removed.repeated) == ("removed", "1", "absent")
    assert (added.name, added.recorded) == ("added", "absent")


def test_lists_of_different_length_differ() -> None:
    assert differences([1, 2], [1, 2, 3])[0].repeated == "[1, 2, 3]"


def test_segments_are_loaded_and_compared() -> None:
    a, b = ({"ring": Segment(lambda value=value: {"reward": np.array([1.0, value])})} for value in (2.0, 3.0))
    assert [d.name for d in differences(a, b)] == ["ring/reward"]


def test_large_integers_are_compared_exactly() -> None:
    assert differences({"state": 2**127}, {"state": 2**127 + 1})[0].name == "state"
