"""Ranges of values in sweeps and studies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rl4sys.config import parse
from rl4sys.errors import ConfigError
from rl4sys.sweeps.ranges import Range


def read(given: Any) -> Range:
    return Range.model_validate(given)


def draws(given: Any, count: int = 2000) -> list[Any]:
    rng = np.random.default_rng(1)
    return [read(given).sample(rng) for _ in range(count)]


def test_list_is_read_as_choices() -> None:
    assert read([[64, 64], [128]]).values == [[64, 64], [128]]
    assert {str(drawn) for drawn in draws([[64, 64], [128]])} == {"[64, 64]", "[128]"}


def test_range_with_step_lists_all_values_within_bounds() -> None:
    assert read({"low": 0.1, "high": 0.3, "step": 0.1}).values == [0.1, 0.2, 0.3]
    assert read({"low": 2, "high": 9, "step": 3, "integer": True}).values == [2, 5, 8]
    assert all(isinstance(value, int) for value in read({"low": 1, "high": 4, "integer": True}).values or [])
    assert read({"low": 0, "high": 1}).values is None
    assert read({"low": 1, "high": 100, "integer": True, "log": True}).values is None


def test_samples_are_uniform_between_bounds() -> None:
    drawn = draws({"low": 10, "high": 20})
    assert all(10 <= value <= 20 for value in drawn)
    assert np.mean(drawn) == pytest.approx(15, abs=0.3)
    assert np.std(drawn) == pytest.approx(10 / math.sqrt(12), rel=0.05)


def test_log_samples_are_uniform_in_log_space() -> None:
    logarithms = np.log10(draws({"low": 1e-5, "high": 1e-1, "log": True}))
    counts, _ = np.histogram(logarithms, bins=4, range=(-5, -1))
    assert sum(counts) == 2000
    assert all(400 < count < 600 for count in counts)


def test_integer_bounds_are_sampled_as_often_as_other_values() -> None:
    counts = np.bincount(draws({"low": 1, "high": 4, "integer": True}), minlength=5)
    assert counts[0] == 0
    assert all(400 < count < 600 for count in counts[1:])
    assert set(draws({"low": 1, "high": 3, "integer": True, "log": True})) == {1, 2, 3}


def test_range_with_too_many_values_is_sampled_but_not_listed() -> None:
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
def test_contains_checks_choices_bounds_and_step(given: Any, inside: list[Any], outside: list[Any]) -> None:
    assert all(read(given).contains(value) for value in inside)
    assert not any(read(given).contains(value) for value in outside)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"low": 2, "high": 1}, r"expected low and high, with low less than high, or choices"),
        ({"high": 1}, "expected low and high"),
        ({"low": 0, "high": 1, "log": True}, "with log: true, low must be greater than 0"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "log: true cannot be combined with step; remove one of them"),
        ({"low": 1, "high": 2.5, "integer": True}, "with integer: true, low, high and step must be integers"),
        ({"low": 1, "choices": [1]}, "choices cannot be combined with low, high, log, step or integer"),
        ({"choices": []}, "expected at least one value"),
        ({"choices": [[1], [1]]}, "expected distinct values; a value is given twice"),
        ({"low": 1, "hihg": 2}, r"at\.hihg is not a setting; did you mean high\?"),
        ({"low": 1, "high": 2, "step": 0}, r"at\.step is 0; expected a value greater than 0"),
    ],
)
def test_invalid_range_is_rejected(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(Range, given, "at")
