"""Schedules of hyperparameters: parsing, values and validation."""

from __future__ import annotations

import jsonschema
import pytest

from rl4sys.algorithms.base import AlgorithmConfig
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.config import parse
from rl4sys.errors import ConfigError


def test_plain_number_is_a_constant_schedule() -> None:
    schedule = Schedule.model_validate(0.3)
    assert schedule == constant(0.3)
    assert schedule.at(10**9, None) == 0.3
    assert schedule.model_dump() == 0.3


def test_schedule_is_linear_then_constant() -> None:
    schedule = Schedule(start=1.0, end=0.0, fraction=0.5)
    assert [schedule.at(steps, 100) for steps in (0, 25, 50, 200)] == [1.0, 0.5, 0.0, 0.0]
    assert schedule.model_dump() == {"start": 1.0, "end": 0.0, "fraction": 0.5}


def test_schedule_length_can_be_given_in_steps() -> None:
    schedule = Schedule(start=1.0, end=0.0, steps=200)
    for total_timesteps in (None, 100):
        assert [schedule.at(steps, total_timesteps) for steps in (0, 50, 200, 900)] == [1.0, 0.75, 0.0, 0.0]
    assert schedule.model_dump() == {"start": 1.0, "end": 0.0, "steps": 200}
    assert Schedule.model_validate(schedule.model_dump()) == schedule


class Options(AlgorithmConfig):
    lr: Schedule = constant(0.1)
    other_lr: Schedule | None = None


def options(**settings: object) -> Options:
    return parse(Options, {"name": "own", **settings}, "algorithm")


def test_steps_and_fraction_together_are_rejected() -> None:
    expected = r"algorithm\.lr is \{.*\}; steps and fraction both set the length of the schedule; give only one of them"
    with pytest.raises(ConfigError, match=expected):
        options(lr={"start": 1.0, "steps": 10, "fraction": 0.5})
    assert options(lr={"start": 1.0, "steps": 10, "fraction": 1.0}).lr.at(5, None) == 0.5


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_invalid_schedule_steps_are_rejected(steps: object) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.lr\.steps is .*; expected .* \(Length in environment steps"):
        options(lr={"start": 1.0, "steps": steps})


@pytest.mark.parametrize(
    ("lr", "valid"),
    [
        (0.1, True),
        ({"start": 1.0, "end": 0.0, "fraction": 0.5}, True),
        ({"start": 1.0, "steps": 100}, True),
        ({"start": 1.0, "steps": 0}, False),
        ("fast", False),
    ],
)
def test_json_schema_accepts_exactly_the_valid_schedules(lr: object, valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(Options.model_json_schema())
    assert validator.is_valid({"name": "own", "lr": lr, "other_lr": lr}) == valid
    assert validator.is_valid({"name": "own", "other_lr": None})


def test_schedule_needs_steps_if_total_timesteps_is_unknown() -> None:
    line = {"start": 1.0, "end": 0.05}
    for given in (options(), options(lr=0.5), options(other_lr={**line, "steps": 100})):
        check_schedules(given, None)
    check_schedules(options(other_lr=line), 1000)
    expected = (
        "algorithm.other_lr goes from 1.0 to 0.05 over a fraction of training.total_timesteps, but this training run "
        "has no fixed length; set the length of the schedule in steps, such as {start: 1.0, end: 0.05, steps: 10000}, "
        "or give a number instead of a schedule"
    )
    with pytest.raises(ConfigError) as error:
        check_schedules(options(other_lr=line), None)
    assert str(error.value) == expected


def test_value_of_schedule_with_unknown_length_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"the length of a schedule is unknown; set training\.total_timesteps or the steps"
    ):
        Schedule(start=1.0, end=0.0).at(5, None)
