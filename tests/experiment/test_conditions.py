"""When alert rules hold, and how often that is told."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from rl4sys.experiment.alerts import KINDS
from rl4sys.experiment.conditions import Alert, Seen, Standing
from rl4sys.experiment.machine import Memory


def standing(kind: str, **options: Any) -> Standing:
    return Standing("rule", KINDS[kind](**options))


def told(subject: Standing, seen: Iterable[Seen]) -> list[tuple[int, str]]:
    alerts = [subject.judge(one) for one in seen]
    return [(alert.step, "cleared" if alert.cleared else alert.message) for alert in alerts if alert]


def rows(name: str, *values: float, every: int = 100) -> list[Seen]:
    return [Seen(every * (i + 1), float(i), {name: value}) for i, value in enumerate(values)]


def test_a_metric_that_is_no_number_is_told_by_name() -> None:
    row = {"loss/policy": 1.0, "loss/value": math.nan, "policy/kl": math.inf}
    (alert,) = told(standing("nan"), [Seen(7, 0.0, row)])
    assert alert == (7, "loss/value is nan, and 1 more: lower algorithm.lr, or look at the rewards")
    assert told(standing("nan"), [Seen(7, 0.0, {"loss/policy": 1e300})]) == []


def test_a_run_that_fails_of_a_number_is_told_once_and_as_that() -> None:
    failed = [Seen(7, 0.0, problem="the loss 'td' is not finite", numerical=True)]
    assert told(standing("nan"), failed) == [(7, "the loss 'td' is not finite")]
    assert told(standing("failed"), failed) == []
    assert told(standing("failed"), [Seen(7, 0.0, problem="disk full")]) == [(7, "the run failed: disk full")]
    assert told(standing("nan"), [Seen(7, 0.0, problem="disk full")]) == []


def test_a_reward_that_stays_is_told_once_and_anew_after_it_got_better() -> None:
    subject = standing("stalled", steps=200, min_change=1.0, clear_rows=1)
    values = [10, 10.5, 11, 10, 20, 20, 20, 20]
    assert told(subject, rows("episode/return", *values)) == [
        (300, "reward has not got better by more than 1 for 200 steps: 11, best 10 at step 100"),
        (500, "cleared"),
        (700, "reward has not got better by more than 1 for 200 steps: 20, best 20 at step 500"),
    ]


def test_less_is_better_where_the_rule_says_so() -> None:
    subject = standing("stalled", metric="loss/value", steps=200, goal="min")
    falling, rising = rows("loss/value", 5, 4, 3, 2, 1), rows("loss/value", 5, 6, 7)
    assert told(subject, falling) == []
    assert told(standing("stalled", metric="loss/value", steps=200, goal="min"), rising)[0][0] == 300


def test_a_reward_is_that_of_evaluations_from_the_first_of_them_on() -> None:
    subject = standing("stalled", steps=300)
    training, judged = rows("episode/return", 50, 51), [Seen(300, 0.0, {"evaluation/return": 10.0})]
    later = [Seen(400, 0.0, {"episode/return": 90.0}), Seen(600, 0.0, {"evaluation/return": 10.0})]
    (alert,) = told(subject, [*training, *judged, *later])
    assert alert == (600, "reward has not got better for 300 steps: 10, best 10 at step 300")


def test_a_bound_must_be_crossed_for_as_many_rows_as_asked() -> None:
    subject = standing("threshold", metric="policy/kl", above=1.0, rows=2, clear_rows=2)
    values = [2, 0, 2, 2, 2, 0, 2, 0, 0, 2, 2]
    assert told(subject, rows("policy/kl", *values)) == [
        (400, "policy/kl is 2, above 1, for 2 rows"),
        # Not after one row below the bound: a metric that wavers about it would be told again and again.
        (900, "cleared"),
        (1100, "policy/kl is 2, above 1, for 2 rows"),
    ]


def test_a_lower_bound_is_one_too_and_rows_without_the_metric_do_not_count() -> None:
    subject = standing("threshold", metric="policy/entropy", below=0.1, rows=2)
    entropy = rows("policy/entropy", 0.05, 0.04)
    between = [Seen(150, 0.5, {"evaluation/return": 1.0})]
    assert told(subject, [entropy[0], *between, entropy[1]]) == [(200, "policy/entropy is 0.04, below 0.1, for 2 rows")]


def test_what_lasts_is_told_again_where_that_is_asked_for() -> None:
    subject = standing("threshold", metric="x", above=0, repeat_seconds=2.0)
    assert [step for step, _ in told(subject, rows("x", 1, 1, 1, 1, 1))] == [100, 300, 500]
    once = standing("threshold", metric="x", above=0)
    assert [step for step, _ in told(once, rows("x", 1, 1, 1, 1, 1))] == [100]


def memory(process: int, left: int, needed: int = 0) -> list[Seen]:
    return [Seen(1, 0.0, {"x": 0.0}, Memory(process, left, 10**9), needed)]


def test_memory_is_short_by_share_by_process_or_by_what_the_buffer_still_takes() -> None:
    assert told(standing("memory"), memory(1, left=500_000_000)) == []
    assert told(standing("memory"), memory(1, left=40_000_000)) == [
        (1, "96% of memory is in use: 40.0 MB are left of 1.0 GB")
    ]
    assert told(standing("memory", process_bytes=1000), memory(2000, left=500_000_000)) == [
        (1, "the process takes 2.0 kB, more than 1.0 kB")
    ]
    assert told(standing("memory"), memory(1, left=500_000_000, needed=600_000_000)) == [
        (1, "the buffer will take 600.0 MB more, and 500.0 MB are left of 1.0 GB")
    ]
    assert told(standing("memory", share=None), memory(1, left=1)) == []


def at_rates(*rates: float) -> list[Seen]:
    """A row of 100 steps at each of these speeds."""
    seconds, found = 0.0, [Seen(0, 0.0, {"learner/version": 1.0})]
    for i, rate in enumerate(rates, 1):
        seconds += 100 / rate
        found.append(Seen(100 * i, seconds, {"learner/version": 1.0}))
    return found


def test_a_run_is_slow_by_a_bound_or_by_its_own_beginning() -> None:
    falling = at_rates(*[100.0] * 20, *[10.0] * 3)
    (alert,) = told(standing("slow", rows=3), falling)
    assert alert == (2100, "25.0 steps a second over the last 3 rows; it began with 100")
    assert told(standing("slow", rows=3, fraction=0.1), at_rates(*[100.0] * 20, *[50.0] * 9)) == []
    (bounded,) = told(standing("slow", rows=2, below=60.0, fraction=None), at_rates(50.0, 50.0))
    assert bounded == (200, "50.0 steps a second over the last 2 rows")


def test_the_speed_before_the_first_update_is_not_what_later_speed_is_compared_with() -> None:
    warm = [Seen(100 * i, 0.01 * i, {"learner/version": 0.0}) for i in range(50)]
    learning = [Seen(5000 + 100 * i, 1.0 + i, {"learner/version": 1.0}) for i in range(50)]
    assert told(standing("slow"), [*warm, *learning]) == []


def test_clients_are_stale_by_silence_or_by_versions() -> None:
    silent = [Seen(1, 0.0, clients={"a": 10.0, "b": 400.0, "c": 301.0})]
    assert told(standing("stale_clients"), silent) == [
        (1, "nothing came from client b for 400 seconds, nor from 1 more")
    ]
    assert told(standing("stale_clients"), [Seen(1, 0.0, clients={"a": 10.0})]) == []
    lagging = [Seen(1, 0.0, {"learner/staleness": 3.5})]
    assert told(standing("stale_clients", versions=2), lagging) == [
        (1, "recent trajectories lag 3.5 versions behind, more than 2")
    ]
    assert told(standing("stale_clients"), lagging) == []


def test_silence_is_told_and_ends_with_a_row() -> None:
    moments = [Seen(5, s, silent_seconds=s) for s in (10.0, 601.0, 700.0)] + [Seen(6, 701.0, silent_seconds=0.0)]
    assert told(standing("no_progress"), moments) == [(5, "no row for 601 seconds"), (6, "cleared")]


@pytest.mark.parametrize("stop", range(1, 8))
@pytest.mark.parametrize(
    ("kind", "options"),
    [("stalled", {"steps": 200}), ("threshold", {"above": 10.5, "rows": 2, "clear_rows": 2}), ("nan", {})],
)
def test_a_rule_restored_anywhere_tells_what_one_never_stopped_tells(
    kind: str, options: dict[str, Any], stop: int
) -> None:
    seen = rows("episode/return", 10, 10, 12, 11, math.nan, 13, 12, 9, 9)
    straight, stopped, resumed = (standing(kind, **options) for _ in range(3))
    expected = told(straight, seen)
    first = told(stopped, seen[:stop])
    state = stopped.state()
    assert state is not None
    resumed.restore(state)
    assert first + told(resumed, seen[stop:]) == expected
    assert expected, "nothing was told, so equality would prove nothing"


def test_a_rule_that_was_changed_begins_anew() -> None:
    before, after = standing("threshold", metric="x", above=0), standing("threshold", metric="x", above=1)
    assert told(before, rows("x", 5)) != []
    after.restore(before.state() or {})
    assert told(after, rows("x", 5)) == [(100, "x is 5, above 1")]


def test_what_depends_on_the_machine_is_not_saved() -> None:
    kinds = {kind for kind in KINDS if standing(kind, **({"above": 1} if kind == "threshold" else {})).state() is None}
    assert kinds == {"memory", "slow", "stale_clients", "no_progress"}


def test_an_alert_says_what_it_was_about() -> None:
    alert = standing("threshold", metric="x", above=0).judge(rows("x", 3)[0])
    assert alert == Alert("rule", "threshold", "x is 3, above 0", 100, 3)
