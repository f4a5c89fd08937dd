from __future__ import annotations

import pytest

from rl4sys.algorithms.schedule import Schedule, constant
from rl4sys.errors import ConfigError


def test_a_plain_number_never_changes() -> None:
    schedule = Schedule.model_validate(0.3)
    assert schedule == constant(0.3)
    assert schedule.at(10**9, None) == 0.3
    assert schedule.model_dump() == 0.3


def test_a_line_goes_from_start_to_end_and_stays() -> None:
    schedule = Schedule(start=1.0, end=0.0, fraction=0.5)
    assert [schedule.at(steps, 100) for steps in (0, 25, 50, 200)] == [1.0, 0.5, 0.0, 0.0]
    assert schedule.model_dump() == {"start": 1.0, "end": 0.0, "fraction": 0.5}


def test_a_line_without_an_end_of_training_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a schedule needs training\.total_timesteps"):
        Schedule(start=1.0, end=0.0).at(5, None)
