"""Images of a point moving on a plane, drawn with numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rl4sys.spec import Array

_SIZE = 480
_WHITE, _GREY, _BLUE, _RED, _DARK = (255, 255, 255), (205, 205, 205), (0, 114, 178), (213, 94, 0), (40, 40, 40)
_THIN, _THICK = 2.0, 6.0


def draw_plane(path: Sequence[Array], goals: Array, *, edge: float, near: float) -> Array:
    """Draw a path with its end point, and each goal with a circle of radius ``near``."""
    image = np.full((_SIZE, _SIZE, 3), _WHITE, np.uint8)
    scale = _SIZE / (2.2 * edge)
    for goal in goals:
        distance = _distances(_to_pixels(goal, scale))
        image[np.abs(distance - near * scale) < _THIN / 2] = _GREY
        image[distance < _THICK] = _RED
    for start, end in pairwise(path):
        _draw_line(image, _to_pixels(start, scale), _to_pixels(end, scale))
    image[_distances(_to_pixels(path[-1], scale)) < _THICK] = _DARK
    return image


def _to_pixels(position: Array, scale: float) -> Array:
    """Return the pixel column and row of a position on the plane; the y axis points up."""
    return np.array([_SIZE / 2 + position[0] * scale, _SIZE / 2 - position[1] * scale])


def _distances(point: Array) -> Array:
    """Return the distance of every pixel from a point."""
    rows, columns = np.ogrid[:_SIZE, :_SIZE]
    return np.asarray(np.hypot(columns - point[0], rows - point[1]))


def _draw_line(image: Array, start: Array, end: Array) -> None:
    points = np.linspace(start, end, 2 + int(np.abs(end - start).max()))
    columns, rows = np.clip(np.round(points).astype(int), 0, _SIZE - 2).T
    for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):
        image[rows + down, columns + right] = _BLUE
