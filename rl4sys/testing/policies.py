"""Rules of policies."""

from __future__ import annotations

import numpy as np

from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import MASK, Array, Box, Columns, in_range, is_allowed
from rl4sys.testing.randomness import random_states_kept, seed_global_generators
from rl4sys.testing.rules import expect, rule

_ROUNDING = 1e-5


@rule(
    "decisions have the shapes and types of the spec",
    "return actions of shape (N, *spec.action.shape), integers for a discrete space, and N finite log-probabilities "
    "in float32",
)
def decisions_fit_the_spec(policy: Policy, seen: Columns) -> None:
    rows, space = len(next(iter(seen.values()))), policy.spec.action
    for acting in (policy, policy.greedy()):
        action, log_prob, memory = acting.act(seen, {}, Draws(1))
        wanted = (rows, *space.shape)
        expect(action.shape == wanted, f"actions have shape {action.shape}; expected {wanted}")
        is_integer = np.issubdtype(action.dtype, np.integer)
        expect(is_integer != isinstance(space, Box), f"actions of {space} have dtype {action.dtype}")
        expect(isinstance(space, Box) or in_range(space, action), f"an action is outside of {space}")
        expect(np.isfinite(action).all(), "an action is NaN or infinite")
        got = (log_prob.shape, str(log_prob.dtype))
        expect(got == ((rows,), "float32"), f"log-probabilities have shape and dtype {got}; expected (N,) and float32")
        expect(np.isfinite(log_prob).all(), "a log-probability is NaN or infinite")
        for name, column in memory.items():
            expect(
                column.shape[0] == rows and column.dtype == np.float32,
                f"the recurrent state {name!r} has shape {column.shape} and dtype {column.dtype}; expected {rows} rows "
                "of float32",
            )


@rule(
    "a decision depends on the observation and the draws alone",
    "take all random numbers from the argument draws of act(), not from a global generator, and keep no state between "
    "decisions except the returned memory",
)
def decisions_depend_on_the_draws_alone(policy: Policy, seen: Columns) -> None:
    with random_states_kept():
        seed_global_generators(1)
        first = policy.act(seen, {}, Draws(5))
        seed_global_generators(2)
        again = policy.act(seen, {}, Draws(5))
    _expect_same(first, again, "with the same draws, a second decision", exact=True)


@rule(
    "a batch of decisions equals the decisions of its rows",
    "compute each row from its own observation and draws; do not mix rows, as batch normalization does",
)
def batched_decisions_equal_single_decisions(policy: Policy, seen: Columns, *, exact: bool) -> None:
    rows, draws = len(next(iter(seen.values()))), Draws(2)
    batched = policy.act(seen, {}, Draws(2))
    single = [policy.act({name: c[row : row + 1] for name, c in seen.items()}, {}, draws) for row in range(rows)]
    memory = {name: np.concatenate([decision.memory[name] for decision in single]) for name in batched.memory}
    actions, log_probs = (np.concatenate([decision[part] for decision in single]) for part in (0, 1))
    _expect_same(batched, Decision(actions, log_probs, memory), "the decision for single rows", exact=exact)


@rule(
    "the greedy policy is deterministic",
    "let greedy() return a policy that takes the most likely action, uses no draws, and returns log-probabilities of 0",
)
def greedy_policy_ignores_the_draws(policy: Policy, seen: Columns, *, uses_draws: bool = False) -> None:
    """Check that greedy decisions are always the same.

    ``uses_draws`` allows the policy to take draws that have no effect and to return log-probabilities, as the policy of
    a `BaseAlgorithm` does.
    """
    draws, greedy = Draws(1), policy.greedy()
    first = greedy.act(seen, {}, draws)
    expect(uses_draws or draws.state() == Draws(1).state(), "the greedy policy uses draws")
    _expect_same(first, greedy.act(seen, {}, Draws(2)), "with other draws, the greedy decision", exact=True)
    expect(uses_draws or not first.log_prob.any(), "log-probabilities of the greedy policy are not 0")
    again = greedy.greedy().act(seen, {}, Draws(3))
    _expect_same(first, again, "the greedy form of the greedy policy", exact=True)


@rule(
    "illegal actions are never taken",
    "give actions that the observation 'mask' forbids probability 0, also in the greedy policy",
)
def illegal_actions_are_never_taken(policy: Policy, seen: Columns) -> None:
    space = policy.spec.action
    assert not isinstance(space, Box)  # a mask needs a discrete space
    assert not seen[MASK].all()
    for acting in (policy, policy.greedy()):
        action = acting.act(seen, {}, Draws(1)).action
        expect(in_range(space, action), f"an action is outside of {space}")
        expect(is_allowed(space, action, seen[MASK]), "the policy took an action that its mask forbids")


@rule(
    "the exported policy acts like the live policy",
    "make the operations and weights of export(prefix) compute the same as forward(), and return the head of the live "
    "policy",
)
def snapshot_acts_like_the_policy(policy: Policy, seen: Columns, *, exact: bool) -> None:
    exported, greedy = (SnapshotPolicy(acting.snapshot(7)) for acting in (policy, policy.greedy()))
    expect(exported.version == 7, f"snapshot(7) has version {exported.version}; expected 7")
    for live, frozen, title in (
        (policy, exported, "the exported policy"),
        (policy.greedy(), greedy, "the exported greedy policy"),
        (policy.greedy(), exported.greedy(), "the greedy form of the exported policy"),
    ):
        _expect_same(live.act(seen, {}, Draws(3)), frozen.act(seen, {}, Draws(3)), title, exact=exact)


def _expect_same(one: Decision, other: Decision, title: str, *, exact: bool) -> None:
    expect(
        one.memory.keys() == other.memory.keys(),
        f"{title} has the recurrent states {sorted(other.memory)}; expected {sorted(one.memory)}",
    )
    pairs = {"action": (one.action, other.action), "log-probability": (one.log_prob, other.log_prob)}
    pairs |= {name: (column, other.memory[name]) for name, column in one.memory.items()}
    for name, (expected, got) in pairs.items():
        rows = _differing_rows(expected, got, 0.0 if exact else _ROUNDING)
        observed = f"{title} has a different {name} in {len(rows)} of {len(expected)} rows"
        expect(not len(rows), f"{observed}, such as {got[rows[:1]]} instead of {expected[rows[:1]]}")


def _differing_rows(one: Array, other: Array, tolerance: float) -> Array:
    if one.shape != other.shape:
        return np.arange(len(one))
    differs = ~np.isclose(other, one, rtol=0, atol=tolerance, equal_nan=True)
    return np.flatnonzero(differs.reshape(len(one), -1).any(axis=1))
