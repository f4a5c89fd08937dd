"""Plots of rollouts and Q-values on the multi-goal plane. Plotting needs no display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl4sys.environments.families.multigoal import EDGE, GOALS, squared_distances
from rl4sys.extras import needed_by
from rl4sys.spec import Array

with needed_by("a plot"):
    from matplotlib.figure import Figure

STATES = np.array([[-2.5, 0], [0, 0], [2.5, 2.5]], np.float32)
"""States for Q-value plots: near one goal, in the center, and between two goals."""
_POINTS = 100
_LEVELS = 20


def draw_rollouts(paths: Sequence[Array]) -> Figure:
    """Plot paths, each an array of positions, over contours of the distance cost."""
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
    """Plot, for each state, contours of the Q-values and ``samples`` actions of the policy.

    ``q`` maps rows of states and actions to Q-values; ``sample`` maps rows of states to actions.
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
