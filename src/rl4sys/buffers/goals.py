"""Rewards for reaching goals, by name."""

from __future__ import annotations

import numpy as np

from rl4sys.buffers.base import GoalReward
from rl4sys.spec import Array


def distance(threshold: float) -> GoalReward:
    """0 within ``threshold`` of the goal, else -1."""
    return lambda achieved, desired: np.where(apart(achieved, desired) > threshold, -1.0, 0.0)


def apart(achieved: Array, desired: Array) -> Array:
    """The distance of each row's goal achieved from the one desired."""
    difference = np.asarray(achieved, np.float64) - desired
    return np.asarray(np.sqrt((difference**2).sum(axis=tuple(range(1, difference.ndim)))))
