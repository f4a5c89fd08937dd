"""Terminal plots and sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_LEVELS = "▁▂▃▄▅▆▇█"
_BLANK = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot in a braille character: four rows of two dots."""

_DOTTED = 4
"""Distance between the dots of a dotted line, in columns of dots."""

Points = Sequence[tuple[float, float]]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a sparkline of at most ``width`` characters. Each character shows the mean of consecutive values."""
    known = [value for value in values if math.isfinite(value)]
    if not known or width < 1:
        return ""
    means = [sum(part) / len(part) for part in _split(known, width)]
    low, high = min(means), max(means)
    if high == low:
        return _LEVELS[3] * len(means)
    return "".join(_LEVELS[round((mean - low) / (high - low) * (len(_LEVELS) - 1))] for mean in means)


def format_compact(value: float | None) -> str:
    """Format a number with few characters. Return an empty string for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if value == int(value) and size < 1e7:
        return f"{value:,.0f}"
    if size >= 1e7 or (0 < size < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1e3 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"


def plot(points: Points, width: int, height: int, dotted: Sequence[Points] = ()) -> list[str]:
    """Return the lines of a plot, including the value range on the left and the steps below.

    ``dotted`` are further curves, such as the ends of a confidence interval, drawn as dotted lines.
    """
    known, *others = [[point for point in curve if math.isfinite(point[1])] for curve in (points, *dotted)]
    if not known:
        return ["no data yet"]
    values = [y for curve in (known, *others) for _, y in curve]
    low, high = min(values), max(values)
    labels = [format_compact(high), *[""] * (height - 3), format_compact(low)] if height > 2 else [format_compact(high)]
    margin = max(map(len, labels))
    canvas = _Canvas(max(4, width - margin - 2), max(1, height - 1))
    bounds = (low, high) if high > low else (low - 1, high + 1)
    canvas.draw(known, bounds)
    for curve in filter(None, others):
        canvas.draw(curve, bounds, every=_DOTTED)
    lines = [f"{label:>{margin}} ┤{line}" for label, line in zip(labels, canvas.lines(), strict=True)]
    first, last = f"{known[0][0]:,.0f}", f"{known[-1][0]:,.0f} steps"
    return [*lines, f"{'':>{margin}}  {first} {last:>{max(1, canvas.width - len(first) - 1)}}"]


class _Canvas:
    """Grid of braille characters with two by four dots each."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells = [[_BLANK] * width for _ in range(height)]

    def draw(self, points: Points, bounds: tuple[float, float], every: int = 1) -> None:
        """Draw a line through the points; with ``every``, only its dots in every such column."""
        left, right = points[0][0], points[-1][0]
        placed = [(self._across(x, left, right), self._down(y, bounds)) for x, y in points]
        for (x0, y0), (x1, y1) in zip(placed, [*placed[1:], placed[-1]], strict=True):
            # Draw a line to the next point, dot by dot along its longer axis.
            length = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(length + 1):
                x = x0 + round((x1 - x0) * i / length)
                if x % every == 0:
                    self._dot(x, y0 + round((y1 - y0) * i / length))

    def lines(self) -> list[str]:
        return ["".join(map(chr, row)) for row in self._cells]

    def _across(self, x: float, left: float, right: float) -> int:
        return round((x - left) / (right - left) * (2 * self.width - 1)) if right > left else 0

    def _down(self, y: float, bounds: tuple[float, float]) -> int:
        low, high = bounds
        return round((high - y) / (high - low) * (4 * self.height - 1))

    def _dot(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _split(values: Sequence[float], parts: int) -> list[Sequence[float]]:
    """Split the values into ``parts`` consecutive parts of similar length, or fewer if there are fewer values."""
    count = min(parts, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    return [values[start:end] for start, end in pairwise(edges)]
