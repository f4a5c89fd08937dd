"""How learners are judged beside each other: the same episodes for all, outside the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from clock import Stopwatch
from numpy.typing import NDArray

Act = Callable[[NDArray[Any]], NDArray[Any]]
"""Rows of observations → an action for each, without chance."""
FIRST_SEED = 1_000_000
"""Of the episodes that count, far from those that are learnt in."""


def returns_of(environment: str, act: Act, episodes: int) -> list[float]:
    """Total rewards of episodes that are played side by side."""
    environments = [gymnasium.make(environment) for _ in range(episodes)]
    seen = [one.reset(seed=FIRST_SEED + number)[0] for number, one in enumerate(environments)]
    totals, going = [0.0] * episodes, list(range(episodes))
    while going:
        actions = act(np.stack([seen[number] for number in going]))
        ended = set()
        for number, action in zip(going, actions, strict=True):
            seen[number], reward, terminated, truncated, _ = environments[number].step(action)
            totals[number] += float(reward)
            if terminated or truncated:
                ended.add(number)
        going = [number for number in going if number not in ended]
    return totals


class Examination:
    """Judges a learner whenever it has crossed another multiple of so many steps, and at its end."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._work = work
        self._every, self._goal = work.get("every"), work.get("goal")
        self._judged_at = 0
        self._watch = Stopwatch()
        self.curve: list[tuple[int, float, float]] = []
        """Steps, seconds of training, mean return."""
        self.returns: list[float] = []
        """Of the last that was judged."""

    def begin(self) -> None:
        """Training starts now."""
        self._watch = Stopwatch()

    @property
    def passed(self) -> bool:
        return self._goal is not None and bool(self.curve) and self.curve[-1][2] >= self._goal

    def see(self, steps: int, policy: Callable[[], Act]) -> None:
        """All work of so many steps is done; the policy is asked for if it is to be judged now."""
        if self.passed or not self._due(steps):
            return
        trained, began = self._watch.seconds(), time.perf_counter()
        self.returns = returns_of(self._work["environment"], policy(), self._work["episodes"])
        self.curve.append((steps, trained, float(np.mean(self.returns))))
        self._judged_at = steps
        self._watch.hold(time.perf_counter() - began)

    def _due(self, steps: int) -> bool:
        crossed = self._every is not None and steps // self._every != self._judged_at // self._every
        ended: bool = steps >= self._work["total"] > self._judged_at
        return crossed or ended
