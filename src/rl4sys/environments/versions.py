"""Versions of Gymnasium's environments: of what is named, the one that can be made here."""

from __future__ import annotations

import re

import gymnasium

_VERSIONED = re.compile(r"(?P<base>.+)-v(?P<number>\d+)")


def available_version(name: str) -> str:
    """The name as it is if Gymnasium has that version; else that of the newest version it has.

    A name that Gymnasium does not have in any version stays as it is.
    """
    matched = _VERSIONED.fullmatch(name)
    base = matched["base"] if matched else name
    numbers = [int(m["number"]) for m in map(_VERSIONED.fullmatch, gymnasium.registry) if m and m["base"] == base]
    if not numbers or (matched and int(matched["number"]) in numbers and not _has_moved(name)):
        return name
    return f"{base}-v{max(numbers)}"


def _has_moved(name: str) -> bool:
    """Versions whose code has left Gymnasium stay registered, with a function that says so."""
    return getattr(gymnasium.spec(name).entry_point, "__module__", None) == gymnasium.envs.__name__
