"""Lossless conversion between torch state dicts and plain trees.

A plain tree has only dicts with string keys, lists, scalars and numpy arrays, so it can be written without pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl4sys.errors import CheckpointError
from rl4sys.networks.base import to_array

_ARRAY, _TUPLE, _ITEMS = "~array", "~tuple", "~items"
"""Keys of the dicts that encode a numpy array, a tuple, and a dict with keys other than strings."""


def to_plain(tree: Any, path: str = "") -> Any:
    """Convert a tree of tensors, arrays, dicts, lists, tuples and scalars to a plain tree; all data is copied."""
    if isinstance(tree, torch.Tensor):
        return to_array(tree)
    if isinstance(tree, np.ndarray):
        return {_ARRAY: tree.copy()}
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, Mapping):
        return _plain_mapping(tree, path)
    if isinstance(tree, list | tuple):
        items = [to_plain(item, f"{path}/{index}") for index, item in enumerate(tree)]
        return {_TUPLE: items} if isinstance(tree, tuple) else items
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise CheckpointError(
        f"{path.lstrip('/') or 'the checkpoint'} is {type(tree).__name__}, which cannot be saved; use tensors, arrays, "
        "numbers, strings, lists, tuples and dicts, such as the state_dict() of a module or optimizer"
    )


def from_plain(tree: Any) -> Any:
    """Convert the result of `to_plain` back to the original tree, with tensors on the CPU."""
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, list):
        return [from_plain(item) for item in tree]
    return _from_plain_mapping(tree) if isinstance(tree, Mapping) else tree


def _from_plain_mapping(tree: Mapping[str, Any]) -> Any:
    if _ARRAY in tree:
        return np.array(tree[_ARRAY])
    if _TUPLE in tree:
        return tuple(from_plain(tree[_TUPLE]))
    if _ITEMS in tree:
        return {from_plain(key): from_plain(value) for key, value in tree[_ITEMS]}
    return {name: from_plain(item) for name, item in tree.items()}


def _plain_mapping(tree: Mapping[Any, Any], path: str) -> dict[str, Any]:
    if all(isinstance(name, str) and not name.startswith("~") for name in tree):
        return {name: to_plain(item, f"{path}/{name}") for name, item in tree.items()}
    return {_ITEMS: [[to_plain(key, path), to_plain(item, f"{path}/{key}")] for key, item in tree.items()]}
