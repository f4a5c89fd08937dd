"""Sum trees: the native sum tree equals the numpy reference bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl4sys.buffers.sum_tree import NumpySumTree, tree_bytes
from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE

FORMS: dict[str, Callable[[int], Any]] = {"numpy": NumpySumTree}
if NATIVE:
    from rl4sys._core import SumTree as NativeSumTree

    FORMS["native"] = NativeSumTree


@pytest.fixture(params=FORMS)
def make_tree(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    return FORMS[request.param]


@pytest.mark.skipif(not NATIVE, reason="needs the native core")
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**32), st.integers(1, 6))
def test_native_and_numpy_sum_trees_agree(leaves: int, seed: int, rounds: int) -> None:
    one, other, rng = NumpySumTree(leaves), NativeSumTree(leaves), np.random.default_rng(seed)
    for _ in range(rounds):
        changed = rng.integers(leaves, size=int(rng.integers(1, 2 * leaves + 1)))
        priorities = np.where(rng.random(len(changed)) < 0.3, 0.0, rng.exponential(size=len(changed)) ** 8)
        for tree in (one, other):
            tree.set(changed, priorities)
        assert one.total == other.total
        np.testing.assert_array_equal(one.get(np.arange(leaves)), other.get(np.arange(leaves)))
        values = np.concatenate([rng.random(50) * one.total, [0.0, one.total]])
        np.testing.assert_array_equal(one.find(values), other.find(values))


def test_find_returns_the_leaf_whose_interval_contains_a_value(make_tree: Callable[[int], Any]) -> None:
    tree = make_tree(5)
    tree.set(np.arange(5), np.array([1.0, 0.0, 2.0, 4.0, 0.0]))
    assert tree.total == 7.0
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 6.99])).tolist() == [0, 0, 2, 2, 3, 3]
    assert tree.find(np.array([7.0, 8.0])).tolist() == [3, 3], "a leaf with priority 0 is never returned"


def test_sum_tree_depends_only_on_current_priorities(make_tree: Callable[[int], Any]) -> None:
    rng = np.random.default_rng(0)
    priorities = rng.exponential(size=100)
    in_order, shuffled = make_tree(100), make_tree(100)
    in_order.set(np.arange(100), priorities)
    shuffled.set(np.arange(100), rng.exponential(size=100) * 1e12)
    for leaf in rng.permutation(100):
        shuffled.set(np.array([leaf]), priorities[leaf : leaf + 1])
    assert shuffled.total == in_order.total
    assert in_order.total == pytest.approx(priorities.sum())


@pytest.mark.parametrize(
    ("leaves", "priorities"),
    [([5], [1.0]), ([-1], [1.0]), ([0, 1], [1.0]), ([0], [np.nan]), ([0], [-1.0]), ([0], [np.inf])],
)
def test_invalid_priorities_are_rejected(
    make_tree: Callable[[int], Any], leaves: list[int], priorities: list[float]
) -> None:
    with pytest.raises(SpecError):
        make_tree(5).set(np.array(leaves), np.array(priorities))
    with pytest.raises(SpecError):
        make_tree(0)


def test_tree_bytes_equal_the_size_of_the_nodes() -> None:
    assert all(tree_bytes(n) == NumpySumTree(n)._nodes.nbytes for n in (1, 2, 3, 64, 65))
