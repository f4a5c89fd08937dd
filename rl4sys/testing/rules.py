"""Rules of contracts, and the report of the rules that a component follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec

from rl4sys.errors import ContractError

P = ParamSpec("P")


class _Violation(Exception):
    """Observation that breaks a rule, and a remedy if it is more specific than that of the rule."""

    def __init__(self, observed: str, remedy: str | None) -> None:
        super().__init__(observed)
        self.remedy = remedy


@dataclass(frozen=True)
class Rule(Generic[P]):
    """Rule of a contract. Called with a component, it raises `ContractError` if the rule does not hold.

    The result is a remark for the report, such as the reason why the rule does not apply; usually it is empty.
    """

    statement: str
    remedy: str
    """Text for the error; empty if the observation contains the remedy."""
    check: Callable[P, str | None]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return self.check(*args, **kwargs) or ""
        except _Violation as found:
            raise self._error(str(found), found.remedy or self.remedy) from None
        except Exception as problem:
            # Code of the user may raise any exception.
            raise self._error(f"{type(problem).__name__}: {problem}", self.remedy) from problem

    def _error(self, observed: str, remedy: str) -> ContractError:
        return ContractError(f"{self.statement}\n  observed: {observed}" + f"\n  remedy: {remedy}" * bool(remedy))


def rule(statement: str, remedy: str) -> Callable[[Callable[P, str | None]], Rule[P]]:
    """Return a decorator that makes a rule of a function, which calls `expect`."""
    return lambda check: Rule(statement, remedy, check)


def expect(condition: bool | Any, observed: str, remedy: str | None = None) -> None:
    """Break the rule that is checked unless ``condition`` holds. ``remedy`` replaces the remedy of the rule."""
    if not condition:
        raise _Violation(observed, remedy)


@dataclass(frozen=True)
class Report:
    """Rules that a component follows, and remarks, such as the reason why a policy is not exported."""

    component: str
    rules: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.component} follows all {len(self.rules)} rules:", *(f"  - {rule}" for rule in self.rules)]
        return "\n".join([*lines, *(f"  note: {remark}" for remark in self.remarks)])


class Check:
    """Check of one component: applies rules and collects the report."""

    def __init__(self, component: Any) -> None:
        self._component = component if isinstance(component, str) else getattr(component, "__name__", repr(component))
        self.subject = ""
        """Part of the check that is in progress, for error messages, such as the action space."""
        self._rules: dict[str, None] = {}
        self._remarks: dict[str, None] = {}

    def follows(self, checked: Rule[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Apply a rule. Raises `ContractError` with the name of the component if the rule does not hold."""
        try:
            remark = checked(*args, **kwargs)
        except ContractError as problem:
            subject = f" ({self.subject})" if self.subject else ""
            raise ContractError(f"{self._component}{subject} breaks a rule: {problem}") from problem.__cause__
        self._rules[checked.statement] = None
        if remark:
            self.note(remark)

    def note(self, remark: str) -> None:
        self._remarks[remark] = None

    def report(self) -> Report:
        return Report(str(self._component), tuple(self._rules), tuple(self._remarks))
