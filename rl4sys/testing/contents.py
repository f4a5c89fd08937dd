"""Comparison of states: every array, number and string of a state by its path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias

from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.state_tree import split_state
from rl4sys.spec import State

Contents: TypeAlias = tuple[tuple[str, object], ...]
"""Pairs of path and value, in the order of the state. Arrays are compared bit for bit, with dtype and shape."""


_ARRAY = "$array"
"""Key of a reference to an array, as `split_state` writes it."""


class HasState(Protocol):
    """Learner, algorithm or buffer."""

    def state(self) -> State: ...


def contents(part: HasState) -> Contents:
    """Return everything in the state of ``part``. Later changes of ``part`` do not change the result."""
    return contents_of(part.state())


def contents_of(state: Any) -> Contents:
    document, arrays = split_state(state)
    values = {path: (str(array.dtype), array.shape, array.tobytes()) for path, array in arrays.items()}
    return tuple((path, values.get(path, value)) for path, value in _leaves(document, ""))


def first_difference(one: Contents, other: Contents) -> str:
    """Return the path of the first difference between two states; empty if they are equal."""
    for mine, its in zip_longest(one, other):
        if mine != its:
            return str((mine or its)[0]).lstrip("/")
    return ""


@contextmanager
def checkpoint_of(state: State) -> Iterator[State]:
    """Context manager that returns the state as it is read from a checkpoint, from a temporary directory."""
    with TemporaryDirectory(prefix="rl4sys_check_") as directory:
        store = CheckpointStore(Path(directory))
        store.save(1, {"saved": state}, None)
        loaded: State = store.load().state["saved"]
        yield loaded


def _leaves(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value. As text, NaN equals NaN, and 1 differs from 1.0 and True."""
    if isinstance(document, Mapping) and document and _ARRAY not in document:
        for name, item in document.items():
            yield from _leaves(item, f"{path}/{name}")
    elif isinstance(document, list) and document:
        for index, item in enumerate(document):
            yield from _leaves(item, f"{path}/{index}")
    else:
        yield path, json.dumps(document)
