"""What values a setting may take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rl4sys.config import parse
from rl4sys.errors import ConfigError
from rl4sys.lab.ranges import Range


def read(given: Any) -> Range:
    return Range.model_validate(given)


def draws(given: Any, count: int = 2000) -> list[Any]:
    chance = np.random.default_rng(1)
    return [read(given).draw(chance) for _ in range(count)]


def test_a_list_is_what_there_is_to_choose_from() -> None:
    assert read([[64, 64], [128]]).values == [[64, 64], [128]]
    assert {str(drawn) for drawn in draws([[64, 64], [128]])} == {"[64, 64]", "[128]"}


def test_steps_go_from_the_low_bound_to_the_high_one() -> None:
    assert read({"low": 0.1, "high": 0.3, "step": 0.1}).values == [0.1, 0.2, 0.3]
    assert read({"low": 2, "high": 9, "step": 3, "integer": True}).values == [2, 5, 8]
    assert all(isinstance(value, int) for value in read({"low": 1, "high": 4, "integer": True}).values or [])
    assert read({"low": 0, "high": 1}).values is None
    assert read({"low": 1, "high": 100, "integer": True, "log": True}).values is None


def test_numbers_are_drawn_evenly_between_the_bounds() -> None:
    drawn = draws({"low": 10, "high": 20})
    assert all(10 <= value <= 20 for value in drawn)
    assert np.mean(drawn) == pytest.approx(15, abs=0.3)
    assert np.std(drawn) == pytest.approx(10 / math.sqrt(12), rel=0.05)


def test_with_log_each_size_is_drawn_as_often() -> None:
    logarithms = np.log10(draws({"low": 1e-5, "high": 1e-1, "log": True}))
    counts, _ = np.histogram(logarithms, bins=4, range=(-5, -1))
    assert sum(counts) == 2000
    assert all(400 < count < 600 for count in counts)


def test_whole_numbers_reach_both_bounds_as_often_as_others() -> None:
    counts = np.bincount(draws({"low": 1, "high": 4, "integer": True}), minlength=5)
    assert counts[0] == 0
    assert all(400 < count < 600 for count in counts[1:])
    assert set(draws({"low": 1, "high": 3, "integer": True, "log": True})) == {1, 2, 3}


def test_many_steps_are_drawn_without_being_listed() -> None:
    given = {"low": 0, "high": 1, "step": 1e-6}
    assert read(given).values is None
    assert all(abs(value * 1e6 - round(value * 1e6)) < 1e-6 for value in draws(given, 20))


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        ([1, "a", [2]], [1, "a", [2]], [2, True, [1]]),
        ({"low": 0, "high": 1}, [0, 0.3, 1], [-0.1, 1.1, "0.5", True]),
        ({"low": 0, "high": 1, "step": 0.25}, [0.75, 1], [0.3]),
        ({"low": 1, "high": 5, "integer": True}, [2], [2.5, 6]),
        ({"low": 1, "high": 5, "integer": True, "log": True}, [2], [2.5]),
    ],
)
def test_it_is_known_what_lies_within(given: Any, inside: list[Any], outside: list[Any]) -> None:
    assert all(read(given).holds(value) for value in inside)
    assert not any(read(given).holds(value) for value in outside)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"low": 2, "high": 1}, "a range needs low and high, low below high; or give choices"),
        ({"high": 1}, "a range needs low and high"),
        ({"low": 0, "high": 1, "log": True}, "with log: true, low is above 0 and there is no step"),
        ({"low": 1, "high": 2.5, "integer": True}, "with integer: true, low, high and step are whole numbers"),
        ({"low": 1, "choices": [1]}, "choices go without low, high, log, step and integer"),
        ({"choices": []}, "it should have at least one value"),
        ({"choices": [[1], [1]]}, "a value is given twice"),
        ({"low": 1, "hihg": 2}, r"at\.hihg is not a setting; did you mean high\?"),
        ({"low": 1, "high": 2, "step": 0}, r"at\.step is 0; it should be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_explained(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(Range, given, "at")
