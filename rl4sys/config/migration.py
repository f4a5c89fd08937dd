"""Migration of settings from an older config version to the current one, with a list of changes.

A migration step converts a `Draft` from one version to the next. A config whose version is later than the current one
is rejected.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rl4sys.config.files import VERSION
from rl4sys.config.settings import Settings
from rl4sys.errors import ConfigError
from rl4sys.version import __version__

_MISSING: Any = object()


@dataclass(frozen=True)
class Change:
    """Change of one setting, by dotted key: moved, added (``old`` is None) or removed (``new`` is None)."""

    old: str | None
    new: str | None
    value: Any = None
    reason: str = ""

    def __str__(self) -> str:
        if self.new is None:
            return f"{self.old} removed: {self.reason}"
        if self.old in (None, self.new):
            return f"{self.new}: {self.value}"
        return f"{self.old} → {self.new}"


class Draft:
    """Settings that are being migrated, and the list of changes made so far."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings: Settings = copy.deepcopy(dict(settings))
        self.changes: list[Change] = []

    def get(self, dotted: str, default: Any = None) -> Any:
        """Return the setting with this dotted key, or ``default``."""
        place: Any = self.settings
        for part in dotted.split("."):
            if not isinstance(place, Mapping) or part not in place:
                return default
            place = place[part]
        return place

    def has(self, dotted: str) -> bool:
        return self.get(dotted, _MISSING) is not _MISSING

    def move(self, old: str, new: str, value: Any = _MISSING) -> None:
        """Move a setting to the key ``new`` and set it to ``value`` if given. Do nothing if ``old`` is not set."""
        if not self.has(old):
            return
        value = self.get(old) if value is _MISSING else value
        self._remove(old)
        if self.has(new):
            raise ConfigError(f"{old} and {new} are names of the same setting and both are given; remove one")
        self._put(new, value)
        self.changes.append(Change(old, new, value))

    def put(self, new: str, value: Any) -> None:
        """Add a setting, or change its value."""
        if self.get(new, _MISSING) == value:
            return
        self._put(new, value)
        self.changes.append(Change(None, new, value))

    def drop(self, old: str, reason: str) -> None:
        """Remove a setting and record the reason. Do nothing if ``old`` is not set."""
        if self.has(old):
            self._remove(old)
            self.changes.append(Change(old, None, reason=reason))

    def _put(self, dotted: str, value: Any) -> None:
        *blocks, name = dotted.split(".")
        place = self.settings
        for block in blocks:
            place = place.setdefault(block, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{block} is {place!r:.80}; expected a block of settings")
        place[name] = value

    def _remove(self, dotted: str) -> None:
        """Remove a setting, and every enclosing block that becomes empty."""
        block, _, name = dotted.rpartition(".")
        place = self.get(block) if block else self.settings
        del place[name]
        if block and not place:
            self._remove(block)


Step: TypeAlias = Callable[[Draft], None]
"""Function that converts a draft from one config version to the next."""


def migrate(settings: Mapping[str, Any], steps: Mapping[int, Step], unmarked: int, current: int = VERSION) -> Draft:
    """Migrate settings to version ``current``. Settings without a version are assumed to have version ``unmarked``."""
    draft = Draft(settings)
    for version in range(read_version(settings, unmarked, current), current):
        steps[version](draft)
    draft.put("version", current)
    return draft


def read_version(settings: Mapping[str, Any], unmarked: int, current: int = VERSION) -> int:
    """Return the version of the settings. Raises `ConfigError` if this release does not support the version."""
    version = settings.get("version", unmarked)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise ConfigError(f"version is {version!r}; expected an integer such as {current}")
    if version > current:
        raise ConfigError(
            f"the config has version {version}, but rl4sys {__version__} supports only versions up to {current}; "
            "upgrade rl4sys with: pip install --upgrade rl4sys"
        )
    return version
