"""Choosing among runs: ``algorithm=ppo``, ``reward>200``, ``algorithm.lr<1e-3``, and in what order."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.experiment.record import RunRecord

Value: TypeAlias = str | float | None

_FIELDS: Mapping[str, Callable[[RunRecord], Value]] = {
    "id": lambda run: run.id,
    "name": lambda run: run.name,
    "directory": lambda run: run.path.name,
    "algorithm": lambda run: run.algorithm,
    "environment": lambda run: run.environment,
    "seed": lambda run: run.seed,
    "status": lambda run: run.status,
    "started": lambda run: run.started,
    "finished": lambda run: run.finished,
    "steps": lambda run: run.steps,
    "reward": lambda run: run.reward,
    "best_reward": lambda run: run.best_reward,
    "git_hash": lambda run: run.git_hash,
    "config_hash": lambda run: run.config_hash,
}
_TAG = "tag"
_BEGINNINGS = ("id", "git_hash", "config_hash", "started", "finished")
"""Found by as much of them as one cares to write."""

_FILTER = re.compile(r"\s*([^<>=!\s]+)\s*(>=|<=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True)
class Filter:
    """A condition on one property of a run: a fact, a tag, the final value of a metric, or a setting."""

    key: str
    sign: str
    wanted: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        found = _FILTER.fullmatch(text)
        if found is None or not found[3]:
            raise ConfigError(
                f"{text!r} is not a filter; write a property, a sign (= != > >= < <=) and a value in quotes, such as "
                "'algorithm=ppo' or 'reward>200'"
            )
        made = cls(found[1], "=" if found[2] == "==" else found[2], found[3])
        if made.sign in _ORDERS and made.key not in ("started", "finished") and _number(made.wanted) is None:
            raise ConfigError(f"the filter {text!r} compares with {made.wanted!r}, which is not a number")
        return made

    def matches(self, run: RunRecord) -> bool:
        """A run that lacks the property matches ``!=`` alone."""
        if self.key == _TAG:
            return any(self._is(tag) for tag in run.tags) == (self.sign == "=")
        value = value_of(run, self.key)
        if self.sign in _ORDERS:
            return value is not None and self._in_order(value)
        return (value is not None and self._is(value)) == (self.sign == "=")

    def _is(self, value: str | float) -> bool:
        number = _number(self.wanted)
        if isinstance(value, int | float) and number is not None:
            return value == number
        text, wanted = str(value).casefold(), self.wanted.casefold()
        return fnmatchcase(text, wanted) or (self.key in _BEGINNINGS and text.startswith(wanted))

    def _in_order(self, value: str | float) -> bool:
        wanted = self.wanted if isinstance(value, str) else _number(self.wanted)
        return wanted is not None and _ORDERS[self.sign](value, wanted)


def choose(runs: Sequence[RunRecord], filters: Iterable[Filter]) -> list[RunRecord]:
    """Those that match all; a property that none of the runs has is a mistake."""
    wanted = list(filters)
    for each in wanted:
        if each.key != _TAG:
            _check_known(each.key, runs)
        elif each.sign in _ORDERS:
            raise ConfigError(f"a tag is there or not: write tag={each.wanted} or tag!={each.wanted}")
    return [run for run in runs if all(each.matches(run) for each in wanted)]


def ordered(runs: Sequence[RunRecord], key: str, *, reverse: bool = False) -> list[RunRecord]:
    """Highest and newest first, text by the alphabet; with ``reverse`` the other way. Runs without it come last."""
    _check_known(key, runs)
    having = [run for run in runs if _comparable(value_of(run, key))]
    lacking = [run for run in runs if not _comparable(value_of(run, key))]
    numbers = all(isinstance(value_of(run, key), int | float) for run in having)
    falling = numbers or key in ("started", "finished")
    return [*sorted(having, key=lambda run: _rank(value_of(run, key), numbers), reverse=falling != reverse), *lacking]


def value_of(run: RunRecord, key: str) -> Value:
    """A fact about the run, the last value of a metric, or a setting by its dotted name; None if it has none."""
    if key in _FIELDS:
        return _FIELDS[key](run)
    if key in run.outcome.final:
        return run.outcome.final[key]
    setting: Any = run.settings
    for part in key.split("."):
        setting = setting.get(part) if isinstance(setting, Mapping) else None
    if setting is None or (isinstance(setting, int | float | str) and not isinstance(setting, bool)):
        return setting
    return str(setting).lower()


def _check_known(key: str, runs: Sequence[RunRecord]) -> None:
    if not runs or any(value_of(run, key) is not None for run in runs) or key in _FIELDS:
        return
    known = [*_FIELDS, _TAG, *sorted({name for run in runs for name in run.outcome.final})]
    raise ConfigError(
        f"no run has {key!r}{did_you_mean(key, known)} Known: {', '.join(known)}; and settings, such as algorithm.lr"
    )


def _comparable(value: Value) -> bool:
    """NaN is neither above nor below anything."""
    return value is not None and value == value  # noqa: PLR0124


def _rank(value: Value, number: bool) -> tuple[float, str]:
    return (float(value or 0.0), "") if number else (0.0, str(value).casefold())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
