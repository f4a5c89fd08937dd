"""Goal reward functions of the `her` buffer."""

from __future__ import annotations

import numpy as np

from rl4sys.buffers.base import GoalReward
from rl4sys.spec import Array


def distance(threshold: float) -> GoalReward:
    """Return a goal reward function: 0 if the distance to the goal is at most ``threshold``, else -1."""
    return lambda achieved, desired: np.where(goal_distance(achieved, desired) > threshold, -1.0, 0.0)


def goal_distance(achieved: Array, desired: Array) -> Array:
    """Return the Euclidean distance between the achieved and the desired goal of each row."""
    difference = np.asarray(achieved, np.float64) - desired
    return np.asarray(np.sqrt((difference**2).sum(axis=tuple(range(1, difference.ndim)))))
