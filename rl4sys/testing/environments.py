"""Check of environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rl4sys.config import parse
from rl4sys.environments.base import Environment
from rl4sys.environments.check import RULES
from rl4sys.environments.check import check_environment as find_problems
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.environments.provided import environment_settings
from rl4sys.testing.rules import Check, Report, Rule, expect, rule


def check_environment(
    environment: Any, options: Mapping[str, Any] | None = None, *, steps: int = 500, strict: bool = True
) -> Report:
    """Check an environment against the rules of environments, with the checks of ``rl4sys check-env``.

    ``environment`` is a class, registered or not, a function that makes the environment, its name, or an
    ``environment`` block of a config. ``options`` are passed to the constructor. The environment takes ``steps`` random
    steps, twice. With ``strict=False``, warnings become remarks of the report.

    >>> print(check_environment("CartPole-v1"))
    CartPole-v1 follows all ...

    Raises `ContractError` with all problems of the first rule that does not hold, and `ConfigError` if there is no
    such environment.
    """
    settings = environment_settings(environment)
    settings = {**settings, "options": {**settings.get("options", {}), **(options or {})}}
    config = parse(EnvironmentConfig, settings, "environment")
    check = Check(environment if hasattr(environment, "__name__") else config.name)
    make = partial(make_environment, config)
    if isinstance(environment, str):
        # A wrong name is a mistake in the call, not in the environment.
        make().close()
    check.follows(environment_can_be_made, make)
    found = find_problems(make, steps=steps, remake=config.remake, after_end=True)
    broken = [finding for finding in found if finding.severity == "error" or (strict and finding.severity == "warning")]
    for statement in RULES:
        check.follows(
            Rule(statement, "", _expect_none), [finding.text for finding in broken if finding.rule == statement]
        )
    for finding in found:
        check.note(finding.text)
    return check.report()


def _expect_none(problems: Sequence[str]) -> None:
    expect(not problems, "; ".join(problems))


@rule("the environment can be created", "correct the constructor, or pass its arguments as options")
def environment_can_be_made(make: Callable[[], Environment]) -> None:
    make().close()
