"""Each rule of environments is followed by correct environments, and catches an environment that breaks it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rl4sys.environments.check import RULES
from rl4sys.errors import ConfigError, ContractError
from rl4sys.testing import check_environment
from rl4sys.testing.environments import environment_can_be_made

from ..environments.test_check import FAULTS, Line, MaskedParts
from .tutorial import component

Corridor: Any = component("An environment of your own", "Corridor")
ALL = {environment_can_be_made.statement, *RULES}


@pytest.mark.parametrize("environment", ["CartPole-v1", {"name": "CartPole-v1"}, Line, MaskedParts, partial(Line)])
def test_correct_environment_follows_all_rules(environment: Any) -> None:
    report = check_environment(environment)
    assert set(report.rules) == ALL
    assert report.remarks == ()


def test_environment_of_the_tutorial_follows_all_rules() -> None:
    report = check_environment(Corridor, {"cells": 9})
    assert set(report.rules) == ALL
    assert str(report).startswith(f"Corridor follows all {len(ALL)} rules:\n  - ")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_broken_environment_is_caught_by_its_rule(fault: type[Line]) -> None:
    severity, text = FAULTS[fault]
    if severity == "hint":
        (remark,) = check_environment(fault, steps=20).remarks
        assert remark
        return
    with pytest.raises(ContractError, match=text) as caught:
        check_environment(fault, steps=20)
    assert str(caught.value).startswith(f"{fault.__name__} breaks a rule: ")


def test_every_rule_has_a_broken_environment() -> None:
    from rl4sys.environments.check import check_environment as find_problems

    found = {finding.rule for fault in FAULTS for finding in find_problems(fault, after_end=True)}
    assert found == set(RULES)


def test_warnings_are_remarks_if_not_strict() -> None:
    warned = next(fault for fault, (severity, _) in FAULTS.items() if severity == "warning")
    assert len(check_environment(warned, steps=20, strict=False).remarks) == 1


class Unbuildable(Line):
    def __init__(self) -> None:
        raise RuntimeError("the simulator is not running")


def test_environment_that_cannot_be_made_breaks_a_rule() -> None:
    with pytest.raises(ContractError, match="the simulator is not running") as caught:
        check_environment(Unbuildable)
    assert f"Unbuildable breaks a rule: {environment_can_be_made.statement}" in str(caught.value)


def test_unknown_name_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="did you mean CartPole-v1"):
        check_environment("CartPole-v")
