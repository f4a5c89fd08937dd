"""Leaves of two trees, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl4sys.lab.difference import Difference, Place, compare
from rl4sys.segments import Segment


def found(a: Any, b: Any) -> list[Difference]:
    return [difference for difference in compare(a, b, Place(7, "checkpoint")) if difference is not None]


def test_equal_trees_differ_in_no_leaf() -> None:
    tree = {"a": np.array([1.0, math.nan]), "b": [1, "x", None, math.nan], "c": {"d": True}}
    leaves = list(compare(tree, {**tree, "a": tree["a"].copy()}, Place(7, "checkpoint")))
    assert leaves == [None] * 6


def test_arrays_say_how_many_elements_differ_and_how_far() -> None:
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[0, 1], b[1, 2] = 0.5, -2.0
    [difference] = found({"w": a}, {"w": b})
    assert (difference.name, difference.elements, difference.of_elements, difference.largest) == ("w", 2, 6, 2.0)
    assert difference.in_words() == "w: 2 of 6 elements differ, by 2 at most"


def test_zero_is_not_minus_zero() -> None:
    assert found(np.array([0.0]), np.array([-0.0]))[0].elements == 1


def test_shapes_and_types_are_told_apart() -> None:
    assert found(np.zeros(2), np.zeros(3))[0].in_words() == (
        ": float64 of shape (2,) recorded, float64 of shape (3,) repeated"
    )
    assert found(np.zeros(2, np.int64), np.zeros(2))
    assert found({"x": True}, {"x": np.array([True])})


def test_what_only_one_has_is_absent_from_the_other() -> None:
    [lost, new] = found({"lost": 1}, {"new": {"inner": 2}})
    assert (lost.name, lost.recorded, lost.repeated) == ("lost", "1", "absent")
    assert (new.name, new.recorded) == ("new", "absent")


def test_lists_of_other_lengths_differ() -> None:
    assert found([1, 2], [1, 2, 3])[0].repeated == "[1, 2, 3]"


def test_segments_are_read() -> None:
    a, b = ({"ring": Segment(lambda value=value: {"reward": np.array([1.0, value])})} for value in (2.0, 3.0))
    assert [d.name for d in found(a, b)] == ["ring/reward"]


def test_numbers_of_states_of_any_width_are_compared() -> None:
    assert found({"state": 2**127}, {"state": 2**127 + 1})[0].name == "state"
