"""Sum tree for sampling by priority in logarithmic time, in the native core or in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Array


class NumpySumTree:
    """Reference implementation of the sum tree in numpy: a binary tree in one array.

    Node 1 is the root; the children of node n are 2n and 2n + 1. Every inner node is the sum of its two children, so
    the tree depends only on the current priorities, not on the order of updates.
    """

    def __init__(self, leaves: int) -> None:
        if leaves < 1:
            raise SpecError(f"a sum tree needs at least 1 leaf, got {leaves}")
        self._leaves, self._depth = leaves, (leaves - 1).bit_length()
        self._nodes = np.zeros(2 << self._depth)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def set(self, leaves: Array, priorities: Array) -> None:
        """Set the priorities of the given leaves; for a repeated leaf the last priority is kept."""
        _check(leaves, priorities, self._leaves)
        nodes = leaves + (1 << self._depth)
        self._nodes[nodes] = priorities
        for _ in range(self._depth):
            nodes = np.unique(nodes >> 1)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def get(self, leaves: Array) -> Array:
        _check_leaves(leaves, self._leaves)
        return np.asarray(self._nodes[leaves + (1 << self._depth)])

    def find(self, values: Array) -> Array:
        """Return the leaf of each value: the leaf whose interval of the cumulative priorities contains the value."""
        nodes, rest = np.ones(len(values), np.int64), values.astype(np.float64)
        for _ in range(self._depth):
            left = self._nodes[2 * nodes]
            # Rounding may move a value past the last leaf with a priority above 0; return that leaf.
            right = (rest >= left) & (self._nodes[2 * nodes + 1] > 0)
            rest = np.where(right, rest - left, rest)
            nodes = 2 * nodes + right
        return nodes - (1 << self._depth)


def tree_bytes(leaves: int) -> int:
    """Return the number of bytes of a sum tree with ``leaves`` leaves."""
    return 8 * 2 << (leaves - 1).bit_length()


def _check(leaves: Array, priorities: Array, count: int) -> None:
    _check_leaves(leaves, count)
    if leaves.shape != priorities.shape:
        raise SpecError(f"got {len(priorities)} priorities for {len(leaves)} leaves; expected one priority per leaf")
    if not (np.isfinite(priorities) & (priorities >= 0)).all():
        raise SpecError("a priority is negative or not finite; priorities must be finite and at least 0")


def _check_leaves(leaves: Array, count: int) -> None:
    if len(leaves) and not 0 <= leaves.min() <= leaves.max() < count:
        raise SpecError(f"leaves {leaves.min()}..{leaves.max()} are out of range; the sum tree has {count} leaves")


if TYPE_CHECKING or not NATIVE:
    SumTree = NumpySumTree
else:
    from rl4sys._core import SumTree

__all__ = ["NumpySumTree", "SumTree", "tree_bytes"]
