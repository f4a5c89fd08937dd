"""Pictures of what was learnt on the plane with four goals, drawn without a display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl4sys.environments.multigoal import EDGE, GOALS, squared_distances
from rl4sys.errors import MissingExtraError
from rl4sys.spec import Array

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as _problem:
    raise MissingExtraError("pictures need matplotlib, which is not installed: pip install 'rl4sys[all]'") from _problem

STATES = np.array([[-2.5, 0], [0, 0], [2.5, 2.5]], np.float32)
"""Where the values of actions are shown: beside one goal, between all, between two."""
_POINTS = 100
_LEVELS = 20


def draw_rollouts(paths: Sequence[Array]) -> Figure:
    """Each path, an array of positions, over lines of equal cost."""
    figure = Figure(figsize=(7, 7))
    axes = figure.add_subplot()
    grid = np.linspace(-1.1 * EDGE, 1.1 * EDGE, _POINTS)
    axes.contour(grid, grid, squared_distances(_points(grid)), _LEVELS, linewidths=0.5)
    axes.plot(*GOALS.T, "ro")
    for path in paths:
        axes.plot(*np.asarray(path).T, "b", linewidth=1)
    axes.set(title="Paths", xlabel="x", ylabel="y", aspect="equal")
    return figure


def draw_q(
    q: Callable[[Array, Array], Array],
    sample: Callable[[Array], Array],
    states: Array = STATES,
    samples: int = 100,
) -> Figure:
    """For each state the value of every action, and ``samples`` actions of the policy.

    ``q`` takes rows of states and of actions and gives values; ``sample`` takes rows of states and gives actions.
    """
    figure = Figure(figsize=(5 * len(states), 5))
    for number, state in enumerate(states, 1):
        axes = figure.add_subplot(1, len(states), number)
        _draw_values(axes, q, state)
        axes.plot(*sample(np.tile(state, (samples, 1))).T, "b+")
        axes.set(title=f"from ({state[0]:g}, {state[1]:g})", xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    return figure


def _draw_values(axes: Any, q: Callable[[Array, Array], Array], state: Array) -> None:
    grid = np.linspace(-1, 1, _POINTS, dtype=np.float32)
    actions = _points(grid).reshape(-1, 2)
    values = q(np.tile(state, (len(actions), 1)), actions)
    axes.contour(grid, grid, np.reshape(values, (_POINTS, _POINTS)), _LEVELS, linewidths=0.5)


def _points(grid: Array) -> Array:
    return np.stack(np.meshgrid(grid, grid), axis=-1)
