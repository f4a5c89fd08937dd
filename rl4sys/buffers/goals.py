"""Goal rewards by name, for hindsight replay."""

from __future__ import annotations

import numpy as np

from rl4sys.buffers.base import GoalReward
from rl4sys.spec import Array


def distance(threshold: float) -> GoalReward:
    """Return a reward of 0 within ``threshold`` of the goal and -1 elsewhere."""
    return lambda achieved, desired: np.where(goal_distance(achieved, desired) > threshold, -1.0, 0.0)


def goal_distance(achieved: Array, desired: Array) -> Array:
    """Return the Euclidean distance between achieved and desired goal of each row."""
    difference = np.asarray(achieved, np.float64) - desired
    return np.asarray(np.sqrt((difference**2).sum(axis=tuple(range(1, difference.ndim)))))
