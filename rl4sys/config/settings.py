"""Operations on settings: plain mappings as written in a file, before validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from rl4sys.config.yaml_format import parse_yaml
from rl4sys.errors import ConfigError

Settings: TypeAlias = dict[str, Any]
"""Settings as written in a file: a tree of dicts, lists and scalars."""


def override(settings: Settings, assignments: Iterable[str]) -> Settings:
    """Return a copy of the settings with each ``dotted.key=value`` assignment applied. Values are parsed as YAML."""
    result = settings
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"{assignment!r} is not an override; write key.path=value, such as algorithm.lr=1e-3")
        result = change(result, key, parse_yaml(text, f"the override {assignment!r}"))
    return result


def change(settings: Settings, key: str, value: Any) -> Settings:
    """Return a copy of the settings with ``value`` at dotted ``key``. A mapping is merged into an existing block."""
    return _merge(settings, _nested(key.split("."), value), at="")


def differences(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys with different values, each with its value before and after (None if absent)."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**before, **after}:
        a, b, path = before.get(key), after.get(key), f"{at}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found |= differences(a, b, f"{path}.")
        elif a != b:
            found[path] = a, b
    return found


def merged(base: Settings, settings: Settings) -> Settings:
    """Return ``base`` with ``settings`` merged over it, without the key ``extends``."""
    return _merge(base, {key: value for key, value in settings.items() if key != "extends"}, at="")


def _nested(path: list[str], value: Any) -> Settings:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


_RENAMED = {"environment.wrapper": "family"}
"""Earlier dotted names of settings, mapped to the current name in the same block.

Settings are renamed before they are merged, so that either name overrides the other."""


def _renamed(settings: Settings, at: str) -> Settings:
    """Return the settings of the block ``at`` with earlier names replaced by the current names."""
    old = [key for key in settings if f"{at}{key}" in _RENAMED]
    if not old:
        return dict(settings)
    for key in old:
        name = _RENAMED[f"{at}{key}"]
        if settings.get(name, settings[key]) != settings[key]:
            raise ConfigError(
                f"{at}{name} is {settings[name]!r}, but {at}{key} (its earlier name) is {settings[key]!r}; "
                f"remove {at}{key}"
            )
    return {_RENAMED.get(f"{at}{key}", key): value for key, value in settings.items()}


def _merge(base: Settings, change: Settings, at: str) -> Settings:
    result = _renamed(base, at)
    for key, value in _renamed(change, at).items():
        old = result.get(key)
        if isinstance(value, dict):
            result[key] = _merge(old if isinstance(old, dict) else {}, value, f"{at}{key}.")
        elif isinstance(old, dict) and value is not None and at + key in ("algorithm", "environment", "network"):
            raise ConfigError(
                f"{at}{key}={value!r} would replace a whole block; give a single setting, such as {key}.name=…"
            )
        else:
            result[key] = value
    return result
