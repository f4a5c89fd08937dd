"""Pictures of a point that moves on a plane, drawn with numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rl4sys.spec import Array

_SIZE = 480
_WHITE, _GREY, _BLUE, _RED, _DARK = (255, 255, 255), (205, 205, 205), (0, 114, 178), (213, 94, 0), (40, 40, 40)
_THIN, _THICK = 2.0, 6.0


def draw_plane(path: Sequence[Array], goals: Array, *, edge: float, near: float) -> Array:
    """The path so far and where it has got to, with a circle around each goal that is ``near`` to it."""
    picture = np.full((_SIZE, _SIZE, 3), _WHITE, np.uint8)
    scale = _SIZE / (2.2 * edge)
    for goal in goals:
        away = _distances(_on_picture(goal, scale))
        picture[np.abs(away - near * scale) < _THIN / 2] = _GREY
        picture[away < _THICK] = _RED
    for start, end in pairwise(path):
        _draw_line(picture, _on_picture(start, scale), _on_picture(end, scale))
    picture[_distances(_on_picture(path[-1], scale)) < _THICK] = _DARK
    return picture


def _on_picture(position: Array, scale: float) -> Array:
    """Column and row; up is up."""
    return np.array([_SIZE / 2 + position[0] * scale, _SIZE / 2 - position[1] * scale])


def _distances(point: Array) -> Array:
    """Of every point of the picture from one."""
    rows, columns = np.ogrid[:_SIZE, :_SIZE]
    return np.asarray(np.hypot(columns - point[0], rows - point[1]))


def _draw_line(picture: Array, start: Array, end: Array) -> None:
    points = np.linspace(start, end, 2 + int(np.abs(end - start).max()))
    columns, rows = np.clip(np.round(points).astype(int), 0, _SIZE - 2).T
    for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):
        picture[rows + down, columns + right] = _BLUE
