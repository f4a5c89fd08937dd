"""Generalized advantage estimation and discounted returns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.draws import NATIVE
from rl4sys.spec import Array, Columns


def generalized_advantages(  # noqa: PLR0913 - the symbols of one equation
    reward: Array,
    value: Array,
    bootstrap: Array,
    last: Array,
    gamma: float,
    gae_lambda: float,
    *,
    weight: Array | None = None,
) -> Array:
    """Generalized advantage estimation (Schulman et al. 2016) over concatenated trajectories; returns float32.

    ``last`` marks the final row of each trajectory. ``bootstrap`` is used only in final rows: the value of the
    observation after the trajectory, or 0 if the episode terminated. ``weight`` is the V-trace importance weight
    (Espeholt et al. 2018), min(1, current probability / behavior probability), or None if all rows are on-policy. With
    weights, the value target of a row is value + weight * advantage.
    """
    columns = {"reward": reward, "value": value, "bootstrap": bootstrap}
    columns |= {} if weight is None else {"weight": weight}
    columns = {name: np.ascontiguousarray(column, np.float32) for name, column in columns.items()}
    columns["last"] = np.ascontiguousarray(last, np.bool_)
    _check_rows(columns)
    form = _native() if NATIVE else generalized_advantages_python
    return form(**columns, gamma=gamma, gae_lambda=gae_lambda)


def discounted_returns(reward: Array, last: Array, gamma: float) -> Array:
    """Return the discounted sum of rewards from each row to the end of its trajectory; ``last`` marks final rows."""
    zeros = np.zeros(len(reward), np.float32)
    return generalized_advantages(reward, zeros, zeros, last, gamma, gae_lambda=1.0)


def generalized_advantages_python(  # noqa: PLR0913 - the symbols of one equation
    reward: Array,
    value: Array,
    bootstrap: Array,
    last: Array,
    gamma: float,
    gae_lambda: float,
    *,
    weight: Array | None = None,
) -> Array:
    """Reference implementation of `generalized_advantages` in Python.

    From the last row to the first: delta = r + gamma v' - v, A = delta + gamma lambda w' A'; a prime is the next row.
    """
    advantage = np.empty(len(reward), np.float32)
    following = next_value = 0.0
    for t in range(len(reward) - 1, -1, -1):
        if last[t]:
            following, next_value = 0.0, float(bootstrap[t])
        delta = float(reward[t]) + gamma * next_value - float(value[t])
        here = delta + gamma * gae_lambda * following
        advantage[t] = here
        following = here if weight is None else float(weight[t]) * here
        next_value = float(value[t])
    return advantage


def _check_rows(columns: Columns) -> None:
    shapes, last = [column.shape for column in columns.values()], columns["last"]
    if len(set(shapes)) > 1 or last.ndim != 1:
        *names, final = columns
        raise SpecError(f"{', '.join(names)} and {final} have shapes {shapes}; expected one common shape (rows,)")
    if last.size and not last[-1]:
        raise SpecError(
            "the final row does not end a trajectory; in this row, set 'last' to True and 'bootstrap' to the value of "
            "the next observation"
        )


def _native() -> Callable[..., Array]:
    from rl4sys._core import gae

    return gae
