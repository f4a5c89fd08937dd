"""Settings of an earlier version of a config format turned into the present one, step by step, with a list of changes.

A format has a *step* for each of its versions: a function that changes a `Draft` of that version into one of the next.
A file that a later release wrote is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as release
from typing import Any, TypeAlias

from rl4sys.config import VERSION, Settings
from rl4sys.errors import ConfigError

_MISSING: Any = object()


@dataclass(frozen=True)
class Change:
    """What was done with one setting, by its dotted key: moved to ``new`` with a value, or left out."""

    old: str | None
    new: str | None
    value: Any = None
    reason: str = ""

    def __str__(self) -> str:
        if self.new is None:
            return f"{self.old} left out: {self.reason}"
        if self.old in (None, self.new):
            return f"{self.new}: {self.value}"
        return f"{self.old} → {self.new}"


class Draft:
    """Settings on their way to another version, and what was done to them so far."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings: Settings = copy.deepcopy(dict(settings))
        self.changes: list[Change] = []

    def get(self, dotted: str, default: Any = None) -> Any:
        """The setting of that key; ``default`` where there is none."""
        place: Any = self.settings
        for part in dotted.split("."):
            if not isinstance(place, Mapping) or part not in place:
                return default
            place = place[part]
        return place

    def has(self, dotted: str) -> bool:
        return self.get(dotted, _MISSING) is not _MISSING

    def move(self, old: str, new: str, value: Any = _MISSING) -> None:
        """The setting under another key, with another value if one is given; nothing where there is no such setting."""
        if not self.has(old):
            return
        value = self.get(old) if value is _MISSING else value
        self._remove(old)
        if self.has(new):
            raise ConfigError(f"{old} and {new} are the same setting, and both are given; remove one")
        self._put(new, value)
        self.changes.append(Change(old, new, value))

    def put(self, new: str, value: Any) -> None:
        """A setting that was not there, or has another value now."""
        if self.get(new, _MISSING) == value:
            return
        self._put(new, value)
        self.changes.append(Change(None, new, value))

    def drop(self, old: str, reason: str) -> None:
        """Leave a setting out; nothing where there is no such setting."""
        if self.has(old):
            self._remove(old)
            self.changes.append(Change(old, None, reason=reason))

    def _put(self, dotted: str, value: Any) -> None:
        *blocks, name = dotted.split(".")
        place = self.settings
        for block in blocks:
            place = place.setdefault(block, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{block} is {place!r:.80}; it should be a block of settings")
        place[name] = value

    def _remove(self, dotted: str) -> None:
        """Takes blocks that are empty then with it."""
        block, _, name = dotted.rpartition(".")
        place = self.get(block) if block else self.settings
        del place[name]
        if block and not place:
            self._remove(block)


Step: TypeAlias = Callable[[Draft], None]
"""Turns a draft of one version into one of the next."""


def migrate(settings: Mapping[str, Any], steps: Mapping[int, Step], unmarked: int, present: int = VERSION) -> Draft:
    """The settings as of version ``present``; those that say no version are taken to be of version ``unmarked``."""
    draft = Draft(settings)
    for version in range(read_version(settings, unmarked, present), present):
        steps[version](draft)
    draft.put("version", present)
    return draft


def read_version(settings: Mapping[str, Any], unmarked: int, present: int = VERSION) -> int:
    """The version that settings say they are of; a `ConfigError` if this release does not know it."""
    version = settings.get("version", unmarked)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise ConfigError(f"version is {version!r}; it should be a whole number such as {present}")
    if version > present:
        raise ConfigError(
            f"the config says version: {version}, and this rl4sys reads version {present}: it was written for a later "
            f"release than this one, which is {release('rl4sys')}; pip install --upgrade rl4sys"
        )
    return version
