"""Pace: what it remembers of what was sent."""

from __future__ import annotations

from rl4sys.client.model import Model
from rl4sys.client.pace import Pace


def test_what_is_remembered_of_what_was_sent_stays_small_however_long_the_server_is_away() -> None:
    pace = Pace(1000)
    pace.publish(Model("first", 1, wants=10**9, taken=0))
    for _ in range(5000):
        pace.ship(3, lambda sequence, urgent: None)
    assert len(pace._shipped) <= 1024
    assert pace._ahead() == 15_000
    pace.publish(Model("first", 2, wants=10**9, taken=1000))
    assert pace._ahead() == 12_000
    pace.publish(Model("first", 3, wants=10**9, taken=5000))
    assert pace._ahead() == 0
