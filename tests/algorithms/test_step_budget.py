"""Gradient steps of actor and critic within one update."""

from __future__ import annotations

from rl4sys.algorithms.step_budget import StepBudget, Trained


def run(budget: StepBudget, stop_after: int | None = None) -> list[Trained]:
    taken: list[Trained] = []
    while budget.consecutive:
        taken.append(budget.trained)
        budget.take()
        if len(taken) == stop_after:
            budget.stop_actor()
    return taken


def test_equal_step_counts_train_both_networks_jointly() -> None:
    assert run(StepBudget(3, 3)) == [Trained.BOTH] * 3


def test_network_with_more_steps_continues_alone() -> None:
    assert run(StepBudget(2, 3)) == [Trained.BOTH, Trained.BOTH, Trained.CRITIC]
    assert run(StepBudget(3, 1)) == [Trained.BOTH, Trained.ACTOR, Trained.ACTOR]


def test_several_steps_can_be_subtracted_at_once() -> None:
    budget = StepBudget(4, 9)
    budget.take(budget.consecutive)
    assert (budget.actor, budget.critic, budget.consecutive) == (0, 5, 5)


def test_stopping_the_actor_also_stops_a_critic_without_extra_steps() -> None:
    assert run(StepBudget(5, 5), stop_after=2) == [Trained.BOTH] * 2
    assert run(StepBudget(5, 3), stop_after=2) == [Trained.BOTH] * 2
    assert run(StepBudget(5, 3), stop_after=4) == [Trained.BOTH] * 3 + [Trained.ACTOR]


def test_critic_with_more_steps_continues_after_the_actor_stops() -> None:
    assert run(StepBudget(3, 5), stop_after=1) == [Trained.BOTH] + [Trained.CRITIC] * 4
