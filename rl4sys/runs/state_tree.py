"""Conversion between a state tree and one JSON document, named arrays and segments. Uses no pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from rl4sys.errors import CheckpointError
from rl4sys.segments import Segment
from rl4sys.spec import Array, Columns

_ESCAPE = "$"
_ARRAY, _SEGMENT = "$array", "$segment"

StoreSegment: TypeAlias = Callable[[Segment], str]
"""Function that stores a segment and returns its name."""
FindSegment: TypeAlias = Callable[[str], Segment]
"""Function that returns the segment with a given name."""


def split_state(state: Any, store: StoreSegment | None = None) -> tuple[Any, dict[str, Array]]:
    """Replace each array in a state by a reference. Return the JSON document and the arrays by path.

    Segments are passed to `store`; without `store`, their arrays are treated like other arrays.
    """
    arrays: dict[str, Array] = {}
    return _without_arrays(state, "", arrays, store), arrays


def join_state(document: Any, arrays: Columns, find: FindSegment | None = None) -> Any:
    """Rebuild the state from the results of `split_state`. Raises `CheckpointError` if an array is missing."""
    if isinstance(document, list):
        return [join_state(item, arrays, find) for item in document]
    if not isinstance(document, dict):
        return document
    if _ARRAY in document:
        if document[_ARRAY] not in arrays:
            raise CheckpointError(f"the checkpoint has no array {document[_ARRAY]!r}")
        return arrays[document[_ARRAY]]
    if find is not None and _SEGMENT in document:
        return find(document[_SEGMENT])
    return {name.removeprefix(_ESCAPE): join_state(item, arrays, find) for name, item in document.items()}


def _without_arrays(state: Any, path: str, arrays: dict[str, Array], store: StoreSegment | None) -> Any:
    if isinstance(state, Segment):
        return {_SEGMENT: store(state)} if store else _without_arrays(state.read(), path, arrays, store)
    if isinstance(state, np.ndarray):
        arrays[path] = state
        return {_ARRAY: path}
    if isinstance(state, Mapping):
        return {
            _escape(str(name)): _without_arrays(item, f"{path}/{name}", arrays, store) for name, item in state.items()
        }
    if isinstance(state, list | tuple):
        return [_without_arrays(item, f"{path}/{index}", arrays, store) for index, item in enumerate(state)]
    if isinstance(state, np.generic):
        return state.item()
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(
        f"the state at {path or '/'} has type {type(state).__name__}; use arrays, numbers, strings, lists and dicts"
    )


def _escape(name: str) -> str:
    """Prefix a name of the state that starts with the escape character; `join_state` removes the prefix."""
    return _ESCAPE + name if name.startswith(_ESCAPE) else name
