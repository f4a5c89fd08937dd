"""Labels of runs, kept in their directories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from rl4sys.errors import ConfigError, RunError
from rl4sys.experiment.files import replace_file
from rl4sys.experiment.record import TAG, TAGS, read_record
from rl4sys.experiment.store import register


def change_tags(path: Path, add: Iterable[str], remove: Iterable[str]) -> tuple[str, ...]:
    """The run's tags after some were added and others taken off; each is there once, in the order it came."""
    added, removed = list(add), list(remove)
    for tag in added:
        if not re.match(TAG, tag):
            raise ConfigError(
                f"{tag!r} is not a tag; it should be 1 to 60 letters, digits, and . : / + - _, such as baseline"
            )
    before = read_record(path).tags
    for tag in removed:
        if tag not in before:
            raise RunError(f"{path.name} has no tag {tag!r}; it has: {', '.join(before) or 'none'}")
    after = tuple(tag for tag in dict.fromkeys([*before, *added]) if tag not in removed)
    try:
        replace_file(path / TAGS, json.dumps(after).encode())
    except OSError as problem:
        raise RunError(f"cannot write the tags of {path}: {problem.strerror}") from problem
    register(path)
    return after
