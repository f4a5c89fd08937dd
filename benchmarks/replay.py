"""Measure the time of prioritized sampling with the sum tree in the native core, in numpy and in plain Python.

Run `python benchmarks/replay.py`. It uses one core for about half a minute. One round samples a batch of 64 steps from
a full buffer of 100,000 steps and updates the priorities of the sampled steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rl4sys.buffers.base import Demand
from rl4sys.buffers.prioritized import Prioritized, PrioritizedConfig
from rl4sys.buffers.sum_tree import NumpySumTree
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Array
from rl4sys.trajectory import Trajectory

LEAVES, ROWS = 100_000, 64


class PlainSumTree:
    """Sum tree as a Python list; processes one leaf at a time."""

    def __init__(self, leaves: int) -> None:
        self._first = 1 << (leaves - 1).bit_length()
        self._nodes = [0.0] * (2 * self._first)

    @property
    def total(self) -> float:
        return self._nodes[1]

    def set(self, leaves: Array, priorities: Array) -> None:
        for leaf, priority in zip(leaves.tolist(), priorities.tolist(), strict=True):
            node = self._first + leaf
            self._nodes[node] = priority
            while node > 1:
                node //= 2
                self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, values: Array) -> Array:
        return np.array([self._find(value) for value in values.tolist()])

    def _find(self, value: float) -> int:
        node = 1
        while node < self._first:
            node *= 2
            if value >= self._nodes[node] and self._nodes[node + 1] > 0:
                value -= self._nodes[node]
                node += 1
        return node - self._first


def trees() -> dict[str, Callable[[int], PlainSumTree | NumpySumTree]]:
    forms: dict[str, Callable[[int], PlainSumTree | NumpySumTree]] = {
        "plain Python": PlainSumTree,
        "numpy": NumpySumTree,
    }
    if NATIVE:
        from rl4sys._core import SumTree

        forms["native"] = SumTree
    return forms


def tree_round(make: Callable[[int], PlainSumTree | NumpySumTree]) -> Callable[[], None]:
    tree, rng = make(LEAVES), np.random.default_rng(0)
    tree.set(np.arange(LEAVES), rng.exponential(size=LEAVES))

    def run() -> None:
        tree.set(tree.find(rng.random(ROWS) * tree.total), rng.exponential(size=ROWS))

    return run


def buffer_round(buffer: Replay) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    columns = {"obs.state": rng.random((LEAVES + 1, 8), np.float32), "action": np.zeros(LEAVES, np.int64)}
    columns |= {name: np.zeros(LEAVES, np.float32) for name in ("reward", "log_prob")}
    buffer.add(Trajectory(0, columns), version=0)

    def run() -> None:
        batch = buffer.sample(rng, ROWS)
        buffer.feedback(batch, {"priority": rng.random(ROWS)})

    return run


def microseconds(rounds: dict[str, Callable[[], None]], turns: int = 15, calls: int = 20) -> dict[str, float]:
    """Return the median time of each kind of round. Rounds alternate, so that other load affects all kinds equally."""
    times: dict[str, list[float]] = {name: [] for name in rounds}
    for _ in range(turns):
        for name, run in rounds.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: 1e6 * float(np.median(found)) for name, found in times.items()}


def main() -> None:
    medians = microseconds({name: tree_round(make) for name, make in trees().items()})
    print(f"{f'tree of {LEAVES:,}, {ROWS} sampled and updated':<40}{'p50 µs':>10}{'vs. plain Python':>18}")
    for name, median in medians.items():
        print(f"{name:<40}{median:>10.1f}{'1/' + format(medians['plain Python'] / median, '.0f'):>18}")
    config, demand = {"size": LEAVES}, Demand(batch_size=ROWS)
    buffers = {
        "uniform": Replay(UniformConfig(type="uniform", **config), demand),
        "prioritized": Prioritized(PrioritizedConfig(type="prioritized", **config), demand),
    }
    medians = microseconds({name: buffer_round(buffer) for name, buffer in buffers.items()})
    print(f"\n{f'batch of {ROWS}':<40}{'p50 µs':>10}{'vs. uniform':>18}")
    for name, median in medians.items():
        print(f"{name:<40}{median:>10.1f}{median / medians['uniform']:>17.1f}x")


if __name__ == "__main__":
    main()
