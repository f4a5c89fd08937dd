"""Advantages from rewards and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Array


def generalized_advantages(
    reward: Array, value: Array, bootstrap: Array, last: Array, gamma: float, gae_lambda: float
) -> Array:
    """Generalized advantage estimation (Schulman et al. 2016), float32, over trajectories laid end to end.

    ``last`` marks the final row of each trajectory. Only there ``bootstrap`` is read: the value of what the
    trajectory led to, 0 where it terminated.
    """
    reward, value, bootstrap = (np.ascontiguousarray(column, np.float32) for column in (reward, value, bootstrap))
    last = np.ascontiguousarray(last, np.bool_)
    shapes = [column.shape for column in (reward, value, bootstrap, last)]
    if len(set(shapes)) > 1 or last.ndim != 1:
        raise SpecError(f"reward, value, bootstrap and last have shapes {shapes}; expected the same (M,) for all")
    if last.size and not last[-1]:
        raise SpecError("the last row ends no trajectory; mark it last and give the value it led to as its bootstrap")
    form = _native() if NATIVE else generalized_advantages_python
    return form(reward, value, bootstrap, last, gamma, gae_lambda)


def generalized_advantages_python(
    reward: Array, value: Array, bootstrap: Array, last: Array, gamma: float, gae_lambda: float
) -> Array:
    """The reference: delta = r + gamma v' - v and A = delta + gamma lambda A', from the last row to the first."""
    advantage = np.empty(len(reward), np.float32)
    following = next_value = 0.0
    for t in range(len(reward) - 1, -1, -1):
        if last[t]:
            following, next_value = 0.0, float(bootstrap[t])
        delta = float(reward[t]) + gamma * next_value - float(value[t])
        following = delta + gamma * gae_lambda * following
        next_value = float(value[t])
        advantage[t] = following
    return advantage


def _native() -> Callable[[Array, Array, Array, Array, float, float], Array]:
    from rl4sys._core import gae

    return gae
