"""Panels of charts as inline SVG. Colors are CSS variables, so that they work in light and dark mode."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl4sys.analysis.charts import DASHES, MARKERS, Bars, Line, Panel, Style
from rl4sys.analysis.formatting import abbreviate_steps
from rl4sys.analysis.markup import Markup, element, joined, text
from rl4sys.analysis.statistics import Floats

_WIDTH, _HEIGHT = 640, 360
_RIGHT, _TOP, _BOTTOM = 18, 12, 54
_LABEL_WIDTH, _DIGIT_WIDTH = 40, 10
"""Width in pixels of an axis label and of each character of a tick label, at the larger font size on phones."""
_MARKERS_PER_LINE = 7
_MARK_SHAPES = {
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "square": "M-3.5,-3.5h7v7h-7z",
    "triangle": "M0,-4.5l4.5,8h-9z",
    "diamond": "M0,-5l4.5,5l-4.5,5l-4.5,-5z",
    "cross": "M-4,-2l2,-2l2,2l2,-2l2,2l-2,2l2,2l-2,2l-2,-2l-2,2l-2,-2l2,-2z",
    "plus": "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "down": "M0,4.5l4.5,-8h-9z",
}


@dataclass(frozen=True)
class Scale:
    """Linear map from the range `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, values: Floats) -> Floats:
        share = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
        return np.asarray(self.start + share * (self.end - self.start))

    def at(self, value: float) -> float:
        return float(self(np.array([value]))[0])


def draw_panel(panel: Panel) -> Markup:
    """Return an HTML figure of a panel: heading, curves, and the data for the tooltip."""
    x, y = _scales(panel)
    drawing = element(
        "svg",
        element("title", text(f"{panel.title}: {panel.y_label} over {panel.x_label}")),
        _axes(panel, x, y),
        *(_line(line, x, y) for line in panel.lines if len(line.band.steps)),
        _empty(panel),
        element("line", class_="pointer", y1=_TOP, y2=_HEIGHT - _BOTTOM, visibility="hidden"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
    )
    heading = element("figcaption", text(panel.title))
    values = element("div", class_="values", hidden="")
    return element("figure", heading, drawing, values, _curve_data(panel, x), class_="curves")


def draw_bars(bars: Bars) -> Markup:
    """Return a bar chart as HTML, with names and percentages as text."""
    rows = [
        element(
            "div",
            element("span", text(name), class_="name"),
            element("span", element("i", style=f"width:{max(share, 0):.1%}"), class_="track"),
            element("span", text(f"{share:.0%}"), class_="share"),
            class_="bar",
        )
        for name, share in zip(bars.names, bars.shares, strict=True)
    ]
    return element("figure", element("figcaption", text(bars.title)), *rows, element("small", text(bars.x_label)))


def sample(style: Style) -> Markup:
    """Return a sample of a line style for the legend."""
    stroke = Markup(f'<path class="line" {_stroke(style)} d="M2,8H42"/>')
    return element("svg", stroke, _marker(style, 22, 8), viewBox="0 0 44 16", class_="sample", aria_hidden="true")


def ticks(low: float, high: float, limit: int = 6) -> list[float]:
    """Return round numbers for axis ticks from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / limit
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _left(y: Scale) -> int:
    """Return the x position of the y axis; it depends on the length of the tick labels."""
    values = ticks(y.low, y.high)
    return _LABEL_WIDTH + _DIGIT_WIDTH * max((len(_tick_label(value, values)) for value in values), default=1)


def _scales(panel: Panel) -> tuple[Scale, Scale]:
    bands = [line.band for line in panel.lines if len(line.band.steps)]
    steps = [float(step) for band in bands for step in (band.steps[0], band.steps[-1])]
    shown = [array for band in bands for array in (band.center, band.low, band.high) if array is not None]
    values = np.concatenate(shown) if shown else np.array([0.0, 1.0])
    low, high = _widen(float(values.min()), float(values.max()), 0.06)
    first, last = _widen(min(steps, default=0.0), max(steps, default=1.0), 0.0)
    y = Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    return Scale(first, last, _left(y) + 8, _WIDTH - _RIGHT - 8), y


def _widen(low: float, high: float, share: float) -> tuple[float, float]:
    if low == high:
        return low - (abs(low) or 1.0) * 0.5, high + (abs(high) or 1.0) * 0.5
    margin = (high - low) * share
    return low - margin, high + margin


def _axes(panel: Panel, x: Scale, y: Scale) -> Markup:
    bottom, left = _HEIGHT - _BOTTOM, _left(y)
    across = ticks(y.low, y.high)
    parts = [Markup(f'<path class="grid" d="M{left},{y.at(v):.1f}H{_WIDTH - _RIGHT}"/>') for v in across]
    parts += [
        element("text", text(_tick_label(value, across)), x=left - 8, y=round(y.at(value) + 4, 1), class_="tick end")
        for value in across
    ]
    for step in ticks(x.low, x.high):
        place = x.at(step)
        parts.append(Markup(f'<path class="grid" d="M{place:.1f},{_TOP}V{bottom}"/>'))
        parts.append(
            element("text", text(abbreviate_steps(step)), x=round(place, 1), y=bottom + 18, class_="tick middle")
        )
    parts.append(Markup(f'<path class="axis" d="M{left},{_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>'))
    middle = (left + _WIDTH - _RIGHT) / 2
    parts.append(element("text", text(panel.x_label), x=middle, y=_HEIGHT - 8, class_="label middle"))
    turned = f"translate(14 {(_TOP + bottom) / 2}) rotate(-90)"
    parts.append(element("text", text(panel.y_label), transform=turned, class_="label middle"))
    return joined(parts)


def _tick_label(value: float, others: Sequence[float]) -> str:
    step = others[1] - others[0] if len(others) > 1 else abs(value) or 1.0
    if abs(value) < step * 1e-6:
        return "0"
    largest = max(abs(other) for other in others)
    if largest >= 1e5 or largest < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def _line(line: Line, x: Scale, y: Scale) -> Markup:
    band = line.band
    across, up = x(band.steps), y(band.center)
    parts = []
    if band.low is not None and band.high is not None:
        outline = [*zip(across, y(band.high), strict=True), *zip(across[::-1], y(band.low)[::-1], strict=True)]
        parts.append(Markup(f'<path class="band" fill="var(--c{line.style.color})" d="{_path(outline)}Z"/>'))
    points = list(zip(across, up, strict=True))
    parts.append(Markup(f'<path class="line" {_stroke(line.style)} d="{_path(points)}"/>'))
    parts += [_marker(line.style, *points[index]) for index in _marker_indices(len(points), line.style.marker)]
    return element("g", *parts)


def _marker_indices(count: int, offset: int) -> list[int]:
    if count <= _MARKERS_PER_LINE:
        return list(range(count))
    shift = 0.15 + 0.7 * (offset % 4) / 4
    return [int((index + shift) / _MARKERS_PER_LINE * (count - 1)) for index in range(_MARKERS_PER_LINE)]


def _marker(style: Style, x: float, y: float) -> Markup:
    shape = _MARK_SHAPES[MARKERS[style.marker]]
    return Markup(
        f'<path class="mark" fill="var(--c{style.color})" d="{shape}" transform="translate({x:.1f} {y:.1f})"/>'
    )


def _stroke(style: Style) -> str:
    dash = " ".join(f"{length * 1.7:.1f}" for length in DASHES[style.dash])
    return f'stroke="var(--c{style.color})"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{across:.1f},{up:.1f}" for across, up in points)


def _empty(panel: Panel) -> Markup:
    if any(len(line.band.steps) for line in panel.lines):
        return Markup("")
    return element("text", text("no values yet"), x=_WIDTH / 2, y=_HEIGHT / 2, class_="label middle")


def _curve_data(panel: Panel, x: Scale) -> Markup:
    """Return the curves as JSON for the tooltip script of the page."""
    lines = [
        {
            "label": line.label or panel.title,
            "color": line.style.color,
            "steps": [round(float(step)) for step in line.band.steps],
            "center": _rounded(line.band.center),
            "low": _rounded(line.band.low),
            "high": _rounded(line.band.high),
        }
        for line in panel.lines
        if len(line.band.steps)
    ]
    scale = {"low": x.low, "high": x.high, "start": x.start, "end": x.end, "width": _WIDTH}
    # A label may contain "</script>", so escape every "<".
    written = json.dumps({"x": scale, "unit": panel.x_label, "lines": lines}).replace("<", "\\u003c")
    return Markup(f'<script type="application/json">{written}</script>')


def _rounded(values: Floats | None) -> list[float] | None:
    return None if values is None else [float(f"{value:.5g}") for value in values]
