"""Advantages from rewards and values."""

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
    """Generalized advantage estimation (Schulman et al. 2016), float32, over trajectories laid end to end.

    ``last`` marks the final row of each trajectory. Only there ``bootstrap`` is read: the value of what the
    trajectory led to, 0 where it terminated. ``weight`` corrects for rows that another policy chose, as V-trace
    does (Espeholt et al. 2018): it is min(1, probability now / probability then), and None where all are one's own.
    The target for a row's value is then value + weight * advantage.
    """
    columns = {"reward": reward, "value": value, "bootstrap": bootstrap}
    columns |= {} if weight is None else {"weight": weight}
    columns = {name: np.ascontiguousarray(column, np.float32) for name, column in columns.items()}
    columns["last"] = np.ascontiguousarray(last, np.bool_)
    _check_rows(columns)
    form = _native() if NATIVE else generalized_advantages_python
    return form(**columns, gamma=gamma, gae_lambda=gae_lambda)


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
    """The reference: delta = r + gamma v' - v and A = delta + gamma lambda w' A', from the last row to the first."""
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
        raise SpecError(f"{', '.join(names)} and {final} have shapes {shapes}; expected the same (M,) for all")
    if last.size and not last[-1]:
        raise SpecError("the last row ends no trajectory; mark it last and give the value it led to as its bootstrap")


def _native() -> Callable[..., Array]:
    from rl4sys._core import gae

    return gae
