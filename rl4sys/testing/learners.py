"""Rules of algorithms, checked through the Learner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.algorithms.base import Update
from rl4sys.learner.config import LearnerConfig
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.spec import Box, Spec
from rl4sys.testing.contents import checkpoint_of, contents, first_difference
from rl4sys.testing.policies import snapshot_acts_like_the_policy
from rl4sys.testing.randomness import watched_generators
from rl4sys.testing.rules import expect, rule
from rl4sys.testing.task import RewardedTask, observe, score

_MARGIN = 0.1
"""Difference between the mean rewards of two greedy policies that is not chance."""


@dataclass(frozen=True)
class LearnerCase:
    """Learner to check: its spec and config."""

    spec: Spec
    config: LearnerConfig
    episodes: int = 70
    """Number of episodes of `RewardedTask` that are enough for two updates."""

    def build(self, seed: int = 1, **changes: Any) -> Learner:
        """Build the learner, with some changed fields of `LearnerConfig`."""
        return build_learner(self.spec, self.config.model_copy(update=changes), seed)


@rule(
    "the algorithm can be built",
    'pass the settings that it needs, such as check_algorithm(MyAlgorithm, {"lr": 1e-2}); take sizes from setup.spec, '
    "and accept total_timesteps=None, as in live training",
)
def algorithm_can_be_built(case: LearnerCase) -> None:
    case.build()


@rule(
    "update returns finite metrics",
    'return Update({"loss/policy": loss.item()}) with names and finite numbers',
)
def update_returns_finite_metrics(case: LearnerCase) -> str:
    learner = case.build()
    update = learner.algorithm.update

    def checked_update(batch: Any, steps: int) -> Update:
        result: Any = update(batch, steps)
        expect(isinstance(result, Update), f"update returned {type(result).__name__}")
        return result  # type: ignore[no-any-return]  # checked just above

    learner.algorithm.update = checked_update  # type: ignore[method-assign]  # only for this learner
    rows = RewardedTask(case.spec).feed(learner, case.episodes)
    _expect_updates(learner, case)
    for name, value in ((name, value) for row in rows for name, value in row.items()):
        expect(isinstance(name, str), f"the metric name {name!r} is of type {type(name).__name__}; expected str")
        expect(
            isinstance(value, int | float), f"the metric {name!r} is of type {type(value).__name__}; expected a number"
        )
        expect(math.isfinite(value), f"the metric {name!r} is {value}")
    return "" if any(rows) else "update returned no metrics, so runs log only episode returns"


@rule(
    "the seed alone determines what is learned",
    "take the seeds of all networks and random numbers from setup.seed, as AlgorithmSetup.build_network does; keep no "
    "state in the class or the module",
)
def seed_determines_the_learner(case: LearnerCase) -> str:
    first, second, other = case.build(), case.build(), case.build(seed=2)
    for learner in (first, second, other):
        RewardedTask(case.spec).feed(learner, case.episodes)
    _expect_updates(first, case, at_least=1)
    differs = first_difference(contents(first), contents(second))
    expect(not differs, f"two learners with the same seed and experience differ in {differs}")
    if contents(first.algorithm) != contents(other.algorithm):
        return ""
    return "the algorithm learns the same with every seed; if it uses random numbers, take them from setup.seed"


@rule(
    "the algorithm does not use the global random generators",
    "draw from generators of your own, such as np.random.default_rng(setup.seed.spawn(1)[0]), and keep their state in "
    "state(); a class derived from BaseAlgorithm may use the global generators",
)
def global_generators_are_left_alone(case: LearnerCase) -> None:
    with watched_generators() as changed_generator:
        RewardedTask(case.spec).feed(case.build(), case.episodes)
        changed = changed_generator()
    expect(not changed, f"the algorithm seeded or used the global generator of {changed}")


@rule(
    "a restored learner continues bit for bit",
    "save networks, optimizers, counters and generators in state(), as arrays, numbers and strings, and copy them in "
    "restore()",
)
def restored_learner_continues(case: LearnerCase, *, normalize: bool = False) -> None:
    one, other, loaded = (case.build(s, normalize_obs=normalize, normalize_reward=normalize) for s in (1, 99, 98))
    RewardedTask(case.spec).feed(one, case.episodes)
    with checkpoint_of(one.state()) as saved:
        loaded.restore(saved)
    other.restore(one.state())
    restored = first_difference(contents(one), contents(loaded))
    for learner in (one, other, loaded):
        RewardedTask(case.spec, seed=3).feed(learner, case.episodes)
    _expect_updates(one, case)
    for learner, title in ((loaded, "its checkpoint"), (other, "its state")):
        differs = first_difference(contents(one), contents(learner))
        hint = f"; {restored} differed right after restore" if restored else ""
        expect(not differs, f"a learner restored from {title} differs in {differs} after more updates{hint}")


@rule(
    "learners are independent of one another",
    "keep all state in attributes of the instance, set in __init__; not in attributes of the class or the module",
)
def learners_are_independent(case: LearnerCase) -> None:
    alone, a, b = case.build(), case.build(), case.build(seed=7)
    RewardedTask(case.spec).feed(alone, case.episodes + 10)
    tasks = RewardedTask(case.spec), RewardedTask(case.spec, seed=9)
    for _ in range(case.episodes + 10):
        for learner, task in zip((a, b), tasks, strict=True):
            task.feed(learner, 1)
    _expect_updates(alone, case, at_least=1)
    differs = first_difference(contents(alone), contents(a))
    expect(not differs, f"a learner trained in turns with another learner differs in {differs} from one trained alone")
    expect(contents(b) != contents(alone), "two learners with different seeds and experience are equal")


@rule(
    "the exported policy acts like the live policy, or the export gives the reason",
    "return a TorchPolicy from policy(); or raise ExportError with the reason in snapshot() of the policy",
)
def policy_is_exported_or_gives_the_reason(case: LearnerCase) -> str:
    learner = case.build()
    RewardedTask(case.spec).feed(learner, case.episodes)
    reason = learner.export_error()
    if reason:
        return f"the policy is not exported: {reason}"
    seen = observe(case.spec, np.random.default_rng(3), 500)
    snapshot_acts_like_the_policy.check(learner.algorithm.policy(learner.steps), seen, exact=False)
    return ""


@rule(
    "a rewarded action is learned",
    "check the sign of the loss, and that the optimizer has the weights of the policy; or pass settings that learn "
    'faster, such as {"lr": 1e-2}, or more episodes',
)
def rewarded_action_is_learned(
    case: LearnerCase, *, episodes: int, goal: float | None = None, score_every: int | None = None, rows: int = 2000
) -> None:
    """Learn until the greedy policy is better than ``goal``, by default halfway from its first score to the best one.

    The policy is scored after each ``score_every`` episodes, by default after the last one.
    """
    learner, task = case.build(), RewardedTask(case.spec)
    before = after = score(learner, case.spec, rows)
    best = 0.0 if isinstance(case.spec.action, Box) else 1.0
    goal = (before + best) / 2 if goal is None else goal
    assert goal > before + _MARGIN, "the reward of the initial policy is too close to the goal"
    for _ in range(0, episodes, score_every or episodes):
        task.feed(learner, score_every or episodes)
        after = score(learner, case.spec, rows)
        if after > goal:
            return
    expect(
        condition=False,
        observed=f"the mean reward of the greedy policy was {before:.2f} at first and {after:.2f} after {episodes} "
        f"episodes of 8 steps; expected more than {goal:.2f} (the maximum is {best:.0f})",
    )


def _expect_updates(learner: Learner, case: LearnerCase, at_least: int = 2) -> None:
    expect(
        learner.version >= at_least,
        f"{learner.version} updates took place in {case.episodes} episodes of 8 steps; expected at least {at_least}",
        "let steps_to_next_update() of the buffer return the steps until a batch is due, or reduce buffer.size",
    )
