"""A tree of state ⇄ one JSON document, named arrays and segments. Nothing is ever pickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from rl4sys.errors import CheckpointError
from rl4sys.segments import Segment
from rl4sys.spec import Array, Columns

_ESCAPE = "$"
_ARRAY, _SEGMENT = "$array", "$segment"

Keep: TypeAlias = Callable[[Segment], str]
"""Stores a segment; the name it is found by."""
Find: TypeAlias = Callable[[str], Segment]
"""The segment of that name."""


def split(tree: Any, keep: Keep | None = None) -> tuple[Any, dict[str, Array]]:
    """The tree with every array replaced by a reference, and the arrays by their path.

    Segments are given to ``keep``; without it their arrays are taken for plain ones.
    """
    arrays: dict[str, Array] = {}
    return _without_arrays(tree, "", arrays, keep), arrays


def join(document: Any, arrays: Columns, find: Find | None = None) -> Any:
    """The tree that `split` took apart."""
    if isinstance(document, list):
        return [join(item, arrays, find) for item in document]
    if not isinstance(document, dict):
        return document
    if _ARRAY in document:
        if document[_ARRAY] not in arrays:
            raise CheckpointError(f"the checkpoint misses the array {document[_ARRAY]!r}")
        return arrays[document[_ARRAY]]
    if find is not None and _SEGMENT in document:
        return find(document[_SEGMENT])
    return {name.removeprefix(_ESCAPE): join(item, arrays, find) for name, item in document.items()}


def _without_arrays(tree: Any, path: str, arrays: dict[str, Array], keep: Keep | None) -> Any:
    if isinstance(tree, Segment):
        return {_SEGMENT: keep(tree)} if keep else _without_arrays(tree.read(), path, arrays, keep)
    if isinstance(tree, np.ndarray):
        arrays[path] = tree
        return {_ARRAY: path}
    if isinstance(tree, Mapping):
        return {
            _escaped(str(name)): _without_arrays(item, f"{path}/{name}", arrays, keep) for name, item in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [_without_arrays(item, f"{path}/{index}", arrays, keep) for index, item in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(
        f"state at {path or '/'} is {type(tree).__name__}; it may hold arrays, numbers, strings, lists, dicts"
    )


def _escaped(name: str) -> str:
    """A name of the tree's own that could be taken for one of ours gets a mark that `join` takes off again."""
    return _ESCAPE + name if name.startswith(_ESCAPE) else name
