"""Check of algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmConfig
from rl4sys.algorithms.base_algorithm import ActingPolicy, BaseAlgorithm
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.policy.base import Policy
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec, mask_box, space_summary
from rl4sys.testing import learners, policies
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.learners import LearnerCase
from rl4sys.testing.rules import Check, Report, expect, rule
from rl4sys.testing.task import STEPS, observe

_SPECS = {
    ActionKind.DISCRETE: Spec({"state": Box((4,)), "mask": mask_box(Discrete(4))}, Discrete(4)),
    ActionKind.MULTI_DISCRETE: Spec(
        {"state": Box((6,)), "mask": mask_box(MultiDiscrete((4, 2)))}, MultiDiscrete((4, 2))
    ),
    ActionKind.BOUNDED: Spec({"state": Box((2,))}, Box((1,), low=(-1.0,), high=(1.0,))),
    ActionKind.UNBOUNDED: Spec({"state": Box((2,))}, Box((1,))),
}
"""Spec that an algorithm is checked with, by the kind of its action space."""

_SPECS_WITHOUT_MASK = {
    **{kind: Spec({"state": spec.observation["state"]}, spec.action) for kind, spec in _SPECS.items()},
    ActionKind.DISCRETE: Spec({"state": Box((4,))}, Discrete(2)),
}
"""Spec that a `BaseAlgorithm` is checked with. With discrete actions, these are the spaces of CartPole."""

_FAST = {"gamma": 0.0}
"""Settings with which the task is learned fast, for the fields that an algorithm has."""

_FAST_REPLAY = {"learning_starts": 64, "train_frequency": 16, "gradient_steps": 4, "batch_size": 64}
"""Settings for algorithms that learn from a replay buffer."""

_EPISODES = 3000
"""Number of episodes in which a rewarded action must be learned."""


def check_algorithm(
    algorithm: Any,
    settings: Mapping[str, Any] | None = None,
    *,
    network: Mapping[str, Any] | None = None,
    buffer: Mapping[str, Any] | None = None,
    spec: Spec | None = None,
    learns: bool = True,
) -> Report:
    """Check an algorithm class, registered or not, against the rules of algorithms. Takes a few seconds.

    ``settings``, ``network`` and ``buffer`` are blocks of a config: pass settings that learn fast, such as
    ``{"lr": 1e-2}``. The algorithm is checked with each kind of action that its attribute ``actions`` lists, or with
    ``spec`` alone. With ``learns=False``, for algorithms that learn from recorded data, the check skips the rule that
    the algorithm learns a rewarded action.

    >>> from rl4sys.algorithms.a2c import A2C
    >>> print(check_algorithm(A2C, {"lr": 1e-2}, buffer={"size": 64}))
    A2C follows all ...

    Raises `ContractError` with the first rule that does not hold, and `ConfigError` for settings that are not valid.
    """
    check = Check(algorithm)
    check.follows(class_has_all_parts, algorithm)
    with ALGORITHMS.under_a_name(algorithm) as name:
        check.follows(config_class_is_frozen_and_typed, ALGORITHMS.get(name).Config, AlgorithmConfig)
        config = _learner_config(name, settings or {}, network or {}, buffer or {})
        check.follows(config_is_restored_from_its_settings, config.algorithm)
        for each in _specs(algorithm, check) if spec is None else [spec]:
            _check_learner(check, LearnerCase(each, config), learns=learns)
    if not learns:
        check.note("the rule that a rewarded action is learned was not checked, because learns=False was given")
    return check.report()


@rule(
    "the class has all parts of an algorithm",
    "write the missing methods and attributes, or derive the class from rl4sys.components.BaseAlgorithm",
)
def class_has_all_parts(algorithm: Any) -> None:
    expect(isinstance(algorithm, type), f"{algorithm!r:.80} is not a class")
    with ALGORITHMS.under_a_name(algorithm):
        pass


def _learner_config(
    name: str, settings: Mapping[str, Any], network: Mapping[str, Any], buffer: Mapping[str, Any]
) -> LearnerConfig:
    kind = ALGORITHMS.get(name)
    is_replay = kind.default_buffer.get("type") != "trajectory"
    fast = {**_FAST, **(_FAST_REPLAY if is_replay else {})}
    return LearnerConfig(
        algorithm=parse_algorithm({"name": name, **_accepted(name, fast, settings), **settings}),
        networks=parse_networks(network, name),
        buffer=parse_buffer({"size": 2000 if is_replay else 256, **buffer}, name),
    )


def _accepted(name: str, fast: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the algorithm has, and whose values it accepts."""
    accepted = {}
    for key in sorted(fast.keys() & ALGORITHMS.get(name).Config.model_fields.keys() - settings.keys()):
        try:
            parse_algorithm({"name": name, **settings, key: fast[key]})
        except ConfigError:
            continue
        accepted[key] = fast[key]
    return accepted


def _specs(algorithm: Any, check: Check) -> Sequence[Spec]:
    kinds: Sequence[ActionKind] = getattr(algorithm, "actions", ())
    if not kinds:
        check.note(
            "checked with discrete actions only; list the kinds of actions in the attribute actions to check others"
        )
    if issubclass(algorithm, BaseAlgorithm):
        check.note("checked without action masks; to check masks, pass a spec with the observation 'mask'")
        return [_SPECS_WITHOUT_MASK[kind] for kind in kinds or (ActionKind.DISCRETE,)]
    return [_SPECS[kind] for kind in kinds or (ActionKind.DISCRETE,)]


def _with_enough_episodes(case: LearnerCase) -> LearnerCase:
    """Return the case with enough episodes for two updates."""
    steps = 2 * case.build().steps_to_next_update()
    return replace(case, episodes=max(case.episodes, steps // STEPS + 1))


def _check_learner(check: Check, case: LearnerCase, *, learns: bool) -> None:
    check.subject = f"with actions {space_summary(case.spec.action)}"
    check.follows(learners.algorithm_can_be_built, case)
    case = _with_enough_episodes(case)
    check.follows(learners.update_returns_finite_metrics, case)
    check.follows(learners.global_generators_are_left_alone, case)
    check.follows(learners.seed_determines_the_learner, case)
    check.follows(learners.restored_learner_continues, case)
    check.follows(learners.learners_are_independent, case)
    check.follows(learners.policy_is_exported_or_gives_the_reason, case)
    _check_policy(check, case)
    if learns:
        every = _EPISODES // 30
        check.follows(learners.rewarded_action_is_learned, case, episodes=_EPISODES, score_every=every, rows=500)


def _check_policy(check: Check, case: LearnerCase) -> None:
    seen = observe(case.spec, np.random.default_rng(5), 50)
    for policy in _live_policies(case):
        check.follows(policies.decisions_fit_the_spec, policy, seen)
        check.follows(policies.decisions_depend_on_the_draws_alone, policy, seen)
        check.follows(policies.batched_decisions_equal_single_decisions, policy, seen, exact=False)
        is_acting = isinstance(policy, ActingPolicy)
        if is_acting and policy.greedy() == policy:
            check.note("act() has no parameter deterministic, so evaluations act as in training")
        else:
            check.follows(policies.greedy_policy_ignores_the_draws, policy, seen, uses_draws=is_acting)
        if case.spec.masked:
            many = observe(case.spec, np.random.default_rng(6), 2000)
            check.follows(policies.illegal_actions_are_never_taken, policy, many)


def _live_policies(case: LearnerCase) -> Iterator[Policy]:
    """Return the policies before training, when some algorithms act at random, and after many steps."""
    for steps in (0, 10**6):
        yield case.build().algorithm.policy(steps)
