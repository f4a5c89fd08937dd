"""Limit of the list of sent recordings in `Pace`."""

from __future__ import annotations

from rl4sys.client.model import Model
from rl4sys.client.pace import Pace


def make_model(version: int, learned_sequence: int) -> Model:
    return Model("first", version, steps_to_next_update=10**9, learned_sequence=learned_sequence)


def test_list_of_sent_recordings_is_bounded_during_outage() -> None:
    pace = Pace(1000)
    pace.publish(make_model(1, learned_sequence=0))
    for number in range(1, 5001):
        assert pace.assign_sequence(3) == (number, False)
    assert len(pace._sent) <= 1024
    assert pace._unlearned_steps() == 15_000
    pace.publish(make_model(2, learned_sequence=1000))
    assert pace._unlearned_steps() == 12_000
    pace.publish(make_model(3, learned_sequence=5000))
    assert pace._unlearned_steps() == 0
