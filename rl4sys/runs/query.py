"""Search for one run by path, name or id, or for many runs by filters such as `reward>200`, and sort them."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.directory import is_run, not_a_run
from rl4sys.runs.store import RunStore, usual_roots
from rl4sys.runs.summary import RunSummary

Value: TypeAlias = str | float | None

_FIELDS: Mapping[str, Callable[[RunSummary], Value]] = {
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
_PREFIX_KEYS = ("id", "git_hash", "config_hash", "started", "finished")
"""Filter keys for which a prefix of the value also matches."""
_SHOWN_MATCHES = 8

_FILTER = re.compile(r"\s*([^<>=!\s]+)\s*(>=|<=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def find_run(text: str, root: Path) -> Path:
    """Find a run by its path, its directory name below `root`, its id, or a unique prefix of one of these.

    If `root` is the default root for training, hosted policies in the default root of a server are searched too. Raises
    `RunError` if no run or more than one run matches.
    """
    for path in (Path(text), root / text):
        if text and is_run(path):
            return path
    runs = [run for place in usual_roots(root) for run in RunStore(place).runs()]
    found = _below(Path(text), runs) if "/" in text else _matching(text, runs)
    if "/" in text and not found:
        raise not_a_run(Path(text))
    if len(found) == 1:
        return found[0].path
    if found:
        raise RunError(_explain_ambiguous(text, found))
    raise not_a_run(Path(text)) if text in _folders_here() else RunError(_explain_unknown(text, root, runs))


def _folders_here() -> set[str]:
    return {entry.name for entry in os.scandir() if entry.is_dir()}


def _below(prefix: Path, runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs whose path starts with ``prefix``, such as experiments/ppo_cartpole_2024."""
    return [run for run in runs if run.path.parent == prefix.parent and run.path.name.startswith(prefix.name)]


def _matching(text: str, runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs whose directory name or id is `text`, or else those whose name or id starts with `text`."""
    if not text:
        return []
    exact = [run for run in runs if text in (run.id, run.path.name)]
    return exact or [run for run in runs if run.id.startswith(text) or run.path.name.startswith(text)]


def _explain_ambiguous(text: str, found: Sequence[RunSummary]) -> str:
    listed = ", ".join(f"{run.path} ({run.id})" for run in found[-_SHOWN_MATCHES:])
    more = f" and {len(found) - _SHOWN_MATCHES} older ones" if len(found) > _SHOWN_MATCHES else ""
    return f"{text!r} matches {len(found)} runs: {listed}{more}; give a longer prefix, or the complete name, id or path"


def _explain_unknown(text: str, root: Path, runs: Sequence[RunSummary]) -> str:
    if not runs:
        return f"no run {text!r}: there are no runs in {root}; choose another folder with --root"
    names = [name for run in runs for name in (run.path.name, run.name, run.id)]
    newest = ", ".join(run.path.name for run in runs[-5:])
    return (
        f"no run in {root} has the name or id {text!r}{did_you_mean(text, names)} "
        f"Newest runs: {newest}. See `rl4sys list`"
    )


@dataclass(frozen=True)
class Filter:
    """Condition on one property of a run: a field of its summary, a tag, the last value of a metric, or a setting."""

    key: str
    sign: str
    wanted: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        found = _FILTER.fullmatch(text)
        if found is None or not found[3]:
            raise ConfigError(
                f"{text!r} is not a filter; write a property, an operator (= != > >= < <=) and a value in quotes, "
                "such as 'algorithm=ppo' or 'reward>200'"
            )
        made = cls(found[1], "=" if found[2] == "==" else found[2], found[3])
        if made.sign in _ORDERS and made.key not in ("started", "finished") and _number(made.wanted) is None:
            raise ConfigError(f"the filter {text!r} has the value {made.wanted!r}; expected a number after {made.sign}")
        return made

    def matches(self, run: RunSummary) -> bool:
        """Return whether a run matches. A run without the property matches only `!=`."""
        if self.key == _TAG:
            return any(self._equals(tag) for tag in run.tags) == (self.sign == "=")
        value = value_of(run, self.key)
        if self.sign in _ORDERS:
            return value is not None and self._compares(value)
        return (value is not None and self._equals(value)) == (self.sign == "=")

    def _equals(self, value: str | float) -> bool:
        number = _number(self.wanted)
        if isinstance(value, int | float) and number is not None:
            return value == number
        text, wanted = str(value).casefold(), self.wanted.casefold()
        return fnmatchcase(text, wanted) or (self.key in _PREFIX_KEYS and text.startswith(wanted))

    def _compares(self, value: str | float) -> bool:
        wanted = self.wanted if isinstance(value, str) else _number(self.wanted)
        return wanted is not None and _ORDERS[self.sign](value, wanted)


def filter_runs(runs: Sequence[RunSummary], filters: Iterable[Filter]) -> list[RunSummary]:
    """Return the runs that match all filters. Raises `ConfigError` for a property that no run has."""
    conditions = list(filters)
    for condition in conditions:
        if condition.key != _TAG:
            _check_known(condition.key, runs)
        elif condition.sign in _ORDERS:
            raise ConfigError(
                f"the filter on tag has the operator {condition.sign}; expected tag={condition.wanted} or "
                f"tag!={condition.wanted}"
            )
    return [run for run in runs if all(condition.matches(run) for condition in conditions)]


def sort_runs(runs: Sequence[RunSummary], key: str, *, reverse: bool = False) -> list[RunSummary]:
    """Sort runs by a property: numbers and times descending, text ascending. Runs without the property come last.

    If the property is a number, debug runs also come last.
    """
    _check_known(key, runs)
    values = [(run, value_of(run, key)) for run in runs]
    numeric = all(isinstance(value, int | float) for _, value in values if _is_comparable(value))
    ranked: list[tuple[RunSummary, Value]] = []
    others: list[tuple[RunSummary, Value]] = []
    for run, value in values:
        is_ranked = _is_comparable(value) and not (numeric and run.is_debug)
        (ranked if is_ranked else others).append((run, value))
    descending = (numeric or key in ("started", "finished")) != reverse
    ranked.sort(key=lambda pair: _sort_key(pair[1], numeric), reverse=descending)
    return [run for run, _ in [*ranked, *others]]


def value_of(run: RunSummary, key: str) -> Value:
    """Return a field of the summary, the last value of a metric, or a setting by its dotted name; None if missing."""
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


def _check_known(key: str, runs: Sequence[RunSummary]) -> None:
    if not runs or any(value_of(run, key) is not None for run in runs) or key in _FIELDS:
        return
    known = [*_FIELDS, _TAG, *sorted({name for run in runs for name in run.outcome.final})]
    raise ConfigError(
        f"no run has the property {key!r}{did_you_mean(key, known)} Known properties: {', '.join(known)}; "
        "and settings, such as algorithm.lr"
    )


def _is_comparable(value: Value) -> bool:
    """Return whether a value can be sorted: False for None and NaN."""
    return value is not None and value == value  # noqa: PLR0124


def _sort_key(value: Value, numeric: bool) -> tuple[float, str]:
    return (float(value or 0.0), "") if numeric else (0.0, str(value).casefold())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
