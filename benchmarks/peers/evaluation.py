"""Evaluation of all libraries on the same episodes; evaluation does not count as training time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from clock import Stopwatch
from numpy.typing import NDArray

Act = Callable[[NDArray[Any]], NDArray[Any]]
"""Deterministic policy: function from a batch of observations to a batch of actions."""
FIRST_SEED = 1_000_000
"""Seed of the first evaluation episode, far from the seeds used in training."""


def returns_of(environment: str, act: Act, episodes: int) -> list[float]:
    """Play several episodes in parallel and return their episode returns."""
    environments = [gymnasium.make(environment) for _ in range(episodes)]
    observations = [one.reset(seed=FIRST_SEED + number)[0] for number, one in enumerate(environments)]
    totals, running = [0.0] * episodes, list(range(episodes))
    while running:
        actions = act(np.stack([observations[number] for number in running]))
        ended = set()
        for number, action in zip(running, actions, strict=True):
            observations[number], reward, terminated, truncated, _ = environments[number].step(action)
            totals[number] += float(reward)
            if terminated or truncated:
                ended.add(number)
        running = [number for number in running if number not in ended]
    return totals


class Evaluation:
    """Evaluates a learner after every multiple of `every` steps and at the end."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._work = work
        self._every, self._goal = work.get("every"), work.get("goal")
        self._evaluated_at = 0
        self._watch = Stopwatch()
        self.curve: list[tuple[int, float, float]] = []
        """Steps, training seconds and mean return of each evaluation."""
        self.returns: list[float] = []
        """Returns of the last evaluation."""

    def start(self) -> None:
        """Start the training clock."""
        self._watch = Stopwatch()

    @property
    def passed(self) -> bool:
        return self._goal is not None and bool(self.curve) and self.curve[-1][2] >= self._goal

    def evaluate_if_due(self, steps: int, policy: Callable[[], Act]) -> None:
        """Evaluate the policy if an evaluation is due after `steps` steps; `policy` is called only then."""
        if self.passed or not self._due(steps):
            return
        trained, start = self._watch.seconds(), time.perf_counter()
        self.returns = returns_of(self._work["environment"], policy(), self._work["episodes"])
        self.curve.append((steps, trained, float(np.mean(self.returns))))
        self._evaluated_at = steps
        self._watch.exclude(time.perf_counter() - start)

    def _due(self, steps: int) -> bool:
        crossed = self._every is not None and steps // self._every != self._evaluated_at // self._every
        ended: bool = steps >= self._work["total"] > self._evaluated_at
        return crossed or ended
