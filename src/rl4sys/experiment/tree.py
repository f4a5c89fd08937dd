"""A tree of state ⇄ one JSON document and named arrays. Nothing is ever pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl4sys.errors import CheckpointError
from rl4sys.spec import Array, Columns

_ESCAPE = "$"
_ARRAY = "$array"


def split(tree: Any) -> tuple[Any, dict[str, Array]]:
    """The tree with every array replaced by a reference, and the arrays by their path."""
    arrays: dict[str, Array] = {}
    return _without_arrays(tree, "", arrays), arrays


def join(document: Any, arrays: Columns) -> Any:
    """The tree that `split` took apart."""
    if isinstance(document, list):
        return [join(item, arrays) for item in document]
    if not isinstance(document, dict):
        return document
    if _ARRAY in document:
        if document[_ARRAY] not in arrays:
            raise CheckpointError(f"the checkpoint misses the array {document[_ARRAY]!r}")
        return arrays[document[_ARRAY]]
    return {name.removeprefix(_ESCAPE): join(item, arrays) for name, item in document.items()}


def _without_arrays(tree: Any, path: str, arrays: dict[str, Array]) -> Any:
    if isinstance(tree, np.ndarray):
        arrays[path] = tree
        return {_ARRAY: path}
    if isinstance(tree, Mapping):
        return {_escaped(str(name)): _without_arrays(item, f"{path}/{name}", arrays) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_arrays(item, f"{path}/{index}", arrays) for index, item in enumerate(tree)]
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
