"""Tests of the conditions of alert rules, and of how often rules fire."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from rl4sys.alerts.conditions import Alert, RuleInput, RuleState
from rl4sys.alerts.rules import KINDS
from rl4sys.machine import MemoryUsage


def rule_state(kind: str, **options: Any) -> RuleState:
    return RuleState("rule", KINDS[kind](**options))


def alerts_of(rule: RuleState, inputs: Iterable[RuleInput]) -> list[tuple[int, str]]:
    alerts = [rule.check(one) for one in inputs]
    return [(alert.step, "cleared" if alert.cleared else alert.message) for alert in alerts if alert]


def rows(name: str, *values: float, every: int = 100) -> list[RuleInput]:
    return [RuleInput(every * (i + 1), float(i), {name: value}) for i, value in enumerate(values)]


def test_nan_rule_reports_the_metric() -> None:
    row = {"loss/policy": 1.0, "loss/value": math.nan, "policy/kl": math.inf}
    (alert,) = alerts_of(rule_state("nan"), [RuleInput(7, 0.0, row)])
    message = "loss/value is nan (other metrics that are not finite: 1); lower algorithm.lr or check the rewards"
    assert alert == (7, message)
    assert alerts_of(rule_state("nan"), [RuleInput(7, 0.0, {"loss/policy": 1e300})]) == []


def test_numerical_error_fires_nan_rule_only() -> None:
    failed = [RuleInput(7, 0.0, error="the loss 'td' is not finite", numerical=True)]
    assert alerts_of(rule_state("nan"), failed) == [(7, "the loss 'td' is not finite")]
    assert alerts_of(rule_state("failed"), failed) == []
    assert alerts_of(rule_state("failed"), [RuleInput(7, 0.0, error="disk full")]) == [(7, "the run failed: disk full")]
    assert alerts_of(rule_state("nan"), [RuleInput(7, 0.0, error="disk full")]) == []


def test_stalled_rule_fires_again_after_an_improvement() -> None:
    rule = rule_state("stalled", steps=200, min_change=1.0, clear_rows=1)
    values = [10, 10.5, 11, 10, 20, 20, 20, 20]
    assert alerts_of(rule, rows("episode/return", *values)) == [
        (300, "reward has not improved by more than 1 for 200 steps: current value 11, best value 10 at step 100"),
        (500, "cleared"),
        (700, "reward has not improved by more than 1 for 200 steps: current value 20, best value 20 at step 500"),
    ]


def test_stalled_rule_with_goal_min_expects_decreasing_values() -> None:
    rule = rule_state("stalled", metric="loss/value", steps=200, goal="min")
    falling, rising = rows("loss/value", 5, 4, 3, 2, 1), rows("loss/value", 5, 6, 7)
    assert alerts_of(rule, falling) == []
    assert alerts_of(rule_state("stalled", metric="loss/value", steps=200, goal="min"), rising)[0][0] == 300


def test_reward_is_the_evaluation_return_after_the_first_evaluation() -> None:
    rule = rule_state("stalled", steps=300)
    training, evaluated = rows("episode/return", 50, 51), [RuleInput(300, 0.0, {"evaluation/return": 10.0})]
    later = [RuleInput(400, 0.0, {"episode/return": 90.0}), RuleInput(600, 0.0, {"evaluation/return": 10.0})]
    (alert,) = alerts_of(rule, [*training, *evaluated, *later])
    assert alert == (600, "reward has not improved for 300 steps: current value 10, best value 10 at step 300")


def test_threshold_must_be_crossed_for_the_given_number_of_rows() -> None:
    rule = rule_state("threshold", metric="policy/kl", above=1.0, rows=2, clear_rows=2)
    values = [2, 0, 2, 2, 2, 0, 2, 0, 0, 2, 2]
    assert alerts_of(rule, rows("policy/kl", *values)) == [
        (400, "policy/kl is 2, above 1, for 2 rows"),
        # One row below the bound does not clear the alert; otherwise an oscillating metric would fire repeatedly.
        (900, "cleared"),
        (1100, "policy/kl is 2, above 1, for 2 rows"),
    ]


def test_lower_threshold_ignores_rows_without_the_metric() -> None:
    rule = rule_state("threshold", metric="policy/entropy", below=0.1, rows=2)
    entropy = rows("policy/entropy", 0.05, 0.04)
    between = [RuleInput(150, 0.5, {"evaluation/return": 1.0})]
    assert alerts_of(rule, [entropy[0], *between, entropy[1]]) == [
        (200, "policy/entropy is 0.04, below 0.1, for 2 rows")
    ]


def test_active_alert_repeats_after_repeat_seconds() -> None:
    rule = rule_state("threshold", metric="x", above=0, repeat_seconds=2.0)
    assert [step for step, _ in alerts_of(rule, rows("x", 1, 1, 1, 1, 1))] == [100, 300, 500]
    once = rule_state("threshold", metric="x", above=0)
    assert [step for step, _ in alerts_of(once, rows("x", 1, 1, 1, 1, 1))] == [100]


def memory(process: int, left: int, needed: int = 0) -> list[RuleInput]:
    return [RuleInput(1, 0.0, {"x": 0.0}, MemoryUsage(process, left, 10**9), needed)]


def test_memory_rule_checks_share_process_and_buffer() -> None:
    assert alerts_of(rule_state("memory"), memory(1, left=500_000_000)) == []
    assert alerts_of(rule_state("memory"), memory(1, left=40_000_000)) == [
        (1, "96% of RAM is in use: 40.0 MB of 1.0 GB are available")
    ]
    assert alerts_of(rule_state("memory", process_bytes=1000), memory(2000, left=500_000_000)) == [
        (1, "the process uses 2.0 kB of RAM; the limit is 1.0 kB")
    ]
    assert alerts_of(rule_state("memory"), memory(1, left=500_000_000, needed=600_000_000)) == [
        (1, "the buffer will need 600.0 MB more RAM, but 500.0 MB of 1.0 GB are available")
    ]
    assert alerts_of(rule_state("memory", share=None), memory(1, left=1)) == []


def at_rates(*rates: float) -> list[RuleInput]:
    """Return one row of 100 steps for each speed."""
    seconds, found = 0.0, [RuleInput(0, 0.0, {"learner/version": 1.0})]
    for i, rate in enumerate(rates, 1):
        seconds += 100 / rate
        found.append(RuleInput(100 * i, seconds, {"learner/version": 1.0}))
    return found


def test_slow_rule_compares_with_a_bound_or_the_initial_speed() -> None:
    falling = at_rates(*[100.0] * 20, *[10.0] * 3)
    (alert,) = alerts_of(rule_state("slow", rows=3), falling)
    assert alert == (2100, "25.0 steps per second over the last 3 rows; the initial speed was 100")
    assert alerts_of(rule_state("slow", rows=3, fraction=0.1), at_rates(*[100.0] * 20, *[50.0] * 9)) == []
    (bounded,) = alerts_of(rule_state("slow", rows=2, below=60.0, fraction=None), at_rates(50.0, 50.0))
    assert bounded == (200, "50.0 steps per second over the last 2 rows")


def test_slow_rule_ignores_speed_before_the_first_update() -> None:
    warm = [RuleInput(100 * i, 0.01 * i, {"learner/version": 0.0}) for i in range(50)]
    learning = [RuleInput(5000 + 100 * i, 1.0 + i, {"learner/version": 1.0}) for i in range(50)]
    assert alerts_of(rule_state("slow"), [*warm, *learning]) == []


def test_stale_clients_rule_checks_silent_time_and_staleness() -> None:
    silent = [RuleInput(1, 0.0, clients={"a": 10.0, "b": 400.0, "c": 301.0})]
    assert alerts_of(rule_state("stale_clients"), silent) == [
        (1, "no trajectory from client b for 400 seconds (silent clients: 2)")
    ]
    assert alerts_of(rule_state("stale_clients"), [RuleInput(1, 0.0, clients={"a": 10.0})]) == []
    lagging = [RuleInput(1, 0.0, {"learner/staleness": 3.5})]
    assert alerts_of(rule_state("stale_clients", versions=2), lagging) == [
        (1, "recent trajectories are 3.5 versions old; the limit is 2")
    ]
    assert alerts_of(rule_state("stale_clients"), lagging) == []


def test_no_progress_alert_clears_with_the_next_row() -> None:
    silent = [RuleInput(5, s, silent_seconds=s) for s in (10.0, 601.0, 700.0)]
    moments = [*silent, RuleInput(6, 701.0, silent_seconds=0.0)]
    assert alerts_of(rule_state("no_progress"), moments) == [(5, "no metrics row for 601 seconds"), (6, "cleared")]


@pytest.mark.parametrize("stop", range(1, 8))
@pytest.mark.parametrize(
    ("kind", "options"),
    [("stalled", {"steps": 200}), ("threshold", {"above": 10.5, "rows": 2, "clear_rows": 2}), ("nan", {})],
)
def test_restored_rule_fires_like_an_uninterrupted_rule(kind: str, options: dict[str, Any], stop: int) -> None:
    inputs = rows("episode/return", 10, 10, 12, 11, math.nan, 13, 12, 9, 9)
    straight, stopped, resumed = (rule_state(kind, **options) for _ in range(3))
    expected = alerts_of(straight, inputs)
    first = alerts_of(stopped, inputs[:stop])
    state = stopped.state()
    assert state is not None
    resumed.restore(state)
    assert first + alerts_of(resumed, inputs[stop:]) == expected
    assert expected, "no alert fired, so the comparison is vacuous"


def test_state_of_changed_rule_is_not_restored() -> None:
    before, after = rule_state("threshold", metric="x", above=0), rule_state("threshold", metric="x", above=1)
    assert alerts_of(before, rows("x", 5)) != []
    after.restore(before.state() or {})
    assert alerts_of(after, rows("x", 5)) == [(100, "x is 5, above 1")]


def test_machine_dependent_rules_have_no_saved_state() -> None:
    kinds = {
        kind for kind in KINDS if rule_state(kind, **({"above": 1} if kind == "threshold" else {})).state() is None
    }
    assert kinds == {"memory", "slow", "stale_clients", "no_progress"}


def test_alert_has_rule_kind_message_step_and_value() -> None:
    alert = rule_state("threshold", metric="x", above=0).check(rows("x", 3)[0])
    assert alert == Alert("rule", "threshold", "x is 3, above 0", 100, 3)
