"""Assignment of the columns of a table to the parts of a step, as configured or by their usual names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

from rl4sys.config import did_you_mean
from rl4sys.dataset import ColumnNames, ColumnsConfig
from rl4sys.datasets.table import Table
from rl4sys.errors import ConfigError
from rl4sys.spec import MASK, STATE, Box

_USUAL = {
    "observation": ("observation", "observations", "obs"),
    "next_observation": ("next_observation", "next_observations", "next_obs"),
    "action": ("action", "actions", "act"),
    "reward": ("reward", "rewards", "rew"),
    "terminated": ("terminated", "terminal", "terminals", "termination", "terminations"),
    "truncated": ("truncated", "truncation", "truncations", "timeout", "timeouts"),
    "episode": ("episode", "episodes", "episode_id", "episode_index"),
}
"""Usual names of the columns. `done` is missing, because it often includes truncations."""

_USUAL_MASK = {
    "observation": ("mask", "masks", "action_mask", "action_masks"),
    "next_observation": ("next_mask", "next_masks", "next_action_mask", "next_action_masks"),
}
_SEPARATORS = (".", "/", "_")
"""Characters between a usual name and the name or number of an element, as in ``obs_0`` or ``observation.state``."""

Names: TypeAlias = tuple[str, ...]
ObservationNames: TypeAlias = ColumnNames | dict[str, ColumnNames]
Constant = TypeVar("Constant", float, bool)


@dataclass(frozen=True)
class StepColumns:
    """Names of the columns with the parts of a step. Several columns together form a vector."""

    observation: Mapping[str, Names]
    next_observation: Mapping[str, Names]
    """Empty if the table has no observations after steps."""
    action: Names
    reward: str | float
    """A column, or the reward of all steps."""
    terminated: str | bool
    """A column, or False for steps that never terminate an episode."""
    truncated: str | None
    episode: str | None

    def names(self) -> list[str]:
        """Return the names of all columns, without repetitions."""
        parts = [*self.observation.values(), *self.next_observation.values(), self.action]
        single = (self.reward, self.terminated, self.truncated, self.episode)
        return list(dict.fromkeys([*(n for part in parts for n in part), *(n for n in single if isinstance(n, str))]))


def find_columns(table: Table, config: ColumnsConfig, observations: Mapping[str, Box] | None) -> StepColumns:
    """Find the columns of the parts of a step. Raises one `ConfigError` that lists all mistakes.

    ``observations`` are the expected observations by name; None for any names, by default one observation.
    """
    finder = _Finder(table, list(observations) if observations is not None else None)
    searches: dict[str, Callable[[], Any]] = {
        "observation": lambda: finder.observations("observation", config.observation),
        "next_observation": lambda: finder.next_observations(config.next_observation),
        "action": lambda: finder.vector("action", config.action),
        "reward": lambda: finder.column_or_constant("reward", config.reward),
        "terminated": lambda: finder.column_or_constant("terminated", config.terminated),
        "truncated": lambda: finder.optional("truncated", config.truncated),
        "episode": lambda: finder.optional("episode", config.episode),
    }
    found, mistakes = {}, []
    for part, search in searches.items():
        try:
            found[part] = search()
        except ConfigError as problem:
            mistakes.append(str(problem))
    if mistakes:
        listed = "\n".join(mistakes)
        raise ConfigError(f"{listed}\nColumns of {table.title}: {', '.join(table.names)}.")
    return StepColumns(**found)


class _Finder:
    """Finds the columns of a table for the parts of a step."""

    def __init__(self, table: Table, observations: list[str] | None) -> None:
        self._title, self._columns, self._observations = table.title, table.names, observations

    def optional(self, part: str, given: str | None) -> str | None:
        return self._usual(part) if given is None else self._column(part, given)

    def column_or_constant(self, part: str, given: str | Constant | None) -> str | Constant:
        """Return a column, or the given value of all rows."""
        if given is None:
            return self._usual(part) or self._missing(part)
        if given is True:
            raise ConfigError(
                f"dataset.columns.{part} is true; expected a column, or false if no step ended an episode"
            )
        return self._column(part, given) if isinstance(given, str) else given

    def vector(self, part: str, given: ColumnNames | None) -> Names:
        """Return the columns of a vector. Raises `ConfigError` if there are none."""
        if given is None:
            return self._usual_vector(part) or self._missing(part)
        if isinstance(given, str) and given.endswith("*"):
            return self._with_prefix(part, given[:-1])
        names = [given] if isinstance(given, str) else given
        if not names:
            raise ConfigError(f"dataset.columns.{part} is an empty list; give at least one column")
        return tuple(self._column(part, name) for name in names)

    def next_observations(self, given: ObservationNames | None) -> Mapping[str, Names]:
        """Return the columns of the observations after steps; empty if they are not configured and not found."""
        if given is not None:
            return self.observations("next_observation", given)
        try:
            return self.observations("next_observation", None)
        except ConfigError:
            return {}

    def observations(self, part: str, given: ObservationNames | None) -> Mapping[str, Names]:
        """Return the columns of each named observation."""
        if isinstance(given, Mapping):
            self._check_names(part, given)
            return {name: self.vector(f"{part}.{name}", columns) for name, columns in given.items()}
        expected = self._observations or [STATE]
        plain = [name for name in expected if name != MASK]
        found = {plain[0]: self._single(part, plain[0], given)} if len(plain) == 1 else self._each(part, plain, given)
        return {**found, MASK: self._mask(part)} if MASK in expected else found

    def _single(self, part: str, name: str, given: ColumnNames | None) -> Names:
        found = self._named(part, name) if given is None and not self._usual_vector(part) else None
        return (found,) if found else self.vector(part, given)

    def _each(self, part: str, names: list[str], given: ColumnNames | None) -> dict[str, Names]:
        """Return the column of each of several observations: a prefix or usual name, and the name."""
        if given is None:
            found = {name: self._named(part, name) for name in names}
        else:
            prefix = given[:-1] if isinstance(given, str) and given.endswith("*") else None
            found = {name: f"{prefix}{name}" if f"{prefix}{name}" in self._columns else None for name in names}
        missing = [name for name, column in found.items() if column is None]
        if missing:
            raise ConfigError(
                f"the dataset {self._title} has no column for the {part} {', '.join(missing)}; the environment has the "
                f"observations {', '.join(names)}. Give a column for each, such as "
                f"dataset.columns.{part}: {{{names[0]}: column, ...}}"
            )
        return {name: (str(column),) for name, column in found.items()}

    def _mask(self, part: str) -> Names:
        found = [name for name in _USUAL_MASK[part] if name in self._columns]
        if found:
            return (found[0],)
        raise ConfigError(
            f"the dataset {self._title} has no column for the action mask ({', '.join(_USUAL_MASK[part])}); give it in "
            f"the block dataset.columns.{part} under the name {MASK}"
        )

    def _check_names(self, part: str, given: Mapping[str, ColumnNames]) -> None:
        """Raise `ConfigError` unless the names are those of the expected observations."""
        expected = self._observations if self._observations is not None else list(given)
        for name in given:
            if name not in expected:
                raise ConfigError(
                    f"dataset.columns.{part}.{name} is not an observation{did_you_mean(name, expected)} "
                    f"Observations of the environment: {', '.join(expected)}."
                )
        missing = [name for name in expected if name not in given]
        if missing or not given:
            raise ConfigError(f"dataset.columns.{part} has no column for {', '.join(missing) or 'any observation'}")

    def _usual(self, part: str) -> str | None:
        """Return the column with a usual name. Raises `ConfigError` if there are several."""
        found = [name for name in _USUAL[part] if name in self._columns]
        if len(found) > 1:
            raise ConfigError(
                f"the dataset {self._title} has several columns for {part}: {', '.join(found)}; set "
                f"dataset.columns.{part} to one of them"
            )
        return found[0] if found else None

    def _usual_vector(self, part: str) -> Names:
        """Return the column with a usual name, or the numbered columns, such as obs_0 and obs_1; else no column."""
        single = self._usual(part)
        if single is not None:
            return (single,)
        for usual in _USUAL[part]:
            pattern = re.compile(rf"{usual}[./_]?\[?(\d+)\]?")
            numbered = {name: int(match[1]) for name in self._columns if (match := pattern.fullmatch(name))}
            if numbered:
                return tuple(sorted(numbered, key=numbered.__getitem__))
        return ()

    def _named(self, part: str, name: str) -> str | None:
        """Return the column of a named observation, such as ``observation.state``."""
        candidates = (f"{usual}{separator}{name}" for usual in _USUAL[part] for separator in _SEPARATORS)
        return next((column for column in candidates if column in self._columns), None)

    def _with_prefix(self, part: str, prefix: str) -> Names:
        """Return the columns that begin with a prefix, in the order of their numbers or else of the table."""
        found = [name for name in self._columns if name.startswith(prefix)]
        if not found:
            raise ConfigError(
                f"dataset.columns.{part} is '{prefix}*', but no column of {self._title} begins with {prefix!r}"
            )
        if all(name.removeprefix(prefix).isdecimal() for name in found):
            found.sort(key=lambda name: int(name.removeprefix(prefix)))
        return tuple(found)

    def _column(self, part: str, name: str) -> str:
        if name not in self._columns:
            raise ConfigError(
                f"dataset.columns.{part} is {name!r}, which is not a column of {self._title}"
                f"{did_you_mean(name, self._columns)}"
            )
        return name

    def _missing(self, part: str) -> NoReturn:
        usual = _USUAL[part]
        raise ConfigError(
            f"the dataset {self._title} has no column for {part} (usual names: {', '.join(usual)})"
            f"{did_you_mean(usual[0], self._columns)} Set dataset.columns.{part} to a column{_CONSTANTS.get(part, '')}."
        )


_CONSTANTS = {
    "reward": ", or to the reward of all steps, such as 0 for an algorithm that ignores rewards",
    "terminated": ", or to false if no step ended its episode",
}
