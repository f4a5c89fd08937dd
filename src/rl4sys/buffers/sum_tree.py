"""Priorities whose sums are known, to draw by them in logarithmic time: in the native core, or with numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Array


class NumpySumTree:
    """The reference: a binary tree in one array, node 1 the root, nodes 2n and 2n + 1 below node n.

    A sum is always that of the two nodes below, so the priorities alone decide every bit of the tree.
    """

    def __init__(self, leaves: int) -> None:
        if leaves < 1:
            raise SpecError(f"a sum tree has at least 1 leaf, got {leaves}")
        self._leaves, self._depth = leaves, (leaves - 1).bit_length()
        self._nodes = np.zeros(2 << self._depth)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def set(self, leaves: Array, priorities: Array) -> None:
        """Give leaves their priorities; of several for one leaf the last counts."""
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
        """For each value from 0 to the total, the leaf in whose stretch of the running sum it lies."""
        nodes, rest = np.ones(len(values), np.int64), values.astype(np.float64)
        for _ in range(self._depth):
            left = self._nodes[2 * nodes]
            # Rounding may push a value past the last leaf with a priority; it then belongs to that leaf.
            right = (rest >= left) & (self._nodes[2 * nodes + 1] > 0)
            rest = np.where(right, rest - left, rest)
            nodes = 2 * nodes + right
        return nodes - (1 << self._depth)


def tree_bytes(leaves: int) -> int:
    """What a tree of so many leaves takes up."""
    return 8 * 2 << (leaves - 1).bit_length()


def _check(leaves: Array, priorities: Array, count: int) -> None:
    _check_leaves(leaves, count)
    if leaves.shape != priorities.shape:
        raise SpecError(f"{len(priorities)} priorities for {len(leaves)} leaves; expected one each")
    if not (np.isfinite(priorities) & (priorities >= 0)).all():
        raise SpecError("a priority is not finite, or below 0")


def _check_leaves(leaves: Array, count: int) -> None:
    if len(leaves) and not 0 <= leaves.min() <= leaves.max() < count:
        raise SpecError(f"leaves {leaves.min()}..{leaves.max()} of a sum tree that has {count}")


if TYPE_CHECKING or not NATIVE:
    SumTree = NumpySumTree
else:
    from rl4sys._core import SumTree

__all__ = ["NumpySumTree", "SumTree", "tree_bytes"]
