"""Charts as PNG, SVG or PDF files, drawn with matplotlib."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4sys.analysis.charts import COLORS, DASHES, Bars, Chart, Line, Panel
from rl4sys.analysis.formatting import abbreviate_steps
from rl4sys.errors import ConfigError, RunError
from rl4sys.extras import needed_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_MARKER_CODES = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "X", "plus": "P", "down": "v"}
_MARKER_ORDER = tuple(_MARKER_CODES.values())
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",  # keep text searchable and accessible to screen readers
    "svg.hashsalt": "rl4sys",
}
_SCREEN_DPI = 90
_MARKERS_PER_LINE = 8
_LABEL_WIDTH = 44
_NAME_WIDTH = 34
_SAMPLE_INCHES, _CHARACTER_INCHES = 1.0, 0.09
"""Maximum width of a legend entry without its label, and of each character of the label."""


def check_suffix(path: Path) -> None:
    """Raise `ConfigError` if the file name has no supported suffix."""
    if path.suffix.lower() not in SUFFIXES:
        suffixes = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ConfigError(f"the plot file is {str(path)!r}; expected a file name that ends in {suffixes}")


def draw(chart: Chart, path: Path) -> None:
    """Draw a chart to a file. The suffix determines the format."""
    save(lambda: _figure(chart), path)


def to_png(chart: Chart) -> bytes:
    """Draw a chart as a PNG image."""
    content = io.BytesIO()
    with _style():
        _figure(chart).savefig(content, format="png", dpi=_SCREEN_DPI)
    return content.getvalue()


def _style() -> AbstractContextManager[None]:
    """Return a context that applies the common style. Raises `MissingExtraError` if matplotlib is not installed."""
    with needed_by("a plot"):
        import matplotlib
    return matplotlib.rc_context(_STYLE)


def save(make: Callable[[], Figure], path: Path) -> None:
    """Draw a figure with `make` in the common style and write it to a file. The suffix determines the format."""
    check_suffix(path)
    with _style():
        figure = make()
        # Omit the date from the file, so that the same runs give an identical file.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as problem:
            raise RunError(f"cannot write {path}: {problem.strerror}") from problem


def _figure(chart: Chart) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = 2 if len(chart.panels) == 4 else min(len(chart.panels), 3)
    rows = math.ceil(len(chart.panels) / columns)
    width = (7.2, 9.6, 12.6)[columns - 1]
    legend_rows = math.ceil(len(chart.lines) / _legend_columns(chart, width))
    figure = Figure(
        figsize=(width, 3.5 * rows + 0.24 * legend_rows + 0.8), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(chart.panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, chart.panels, strict=False):
        _draw_panel(axes, panel)
    figure.suptitle(_wrap(chart.title, 36 * columns), fontsize=13, fontweight="bold")
    _add_legend(figure, chart, columns)
    return figure


def _draw_panel(axes: Axes, panel: Panel | Bars) -> None:
    axes.set_title(_escape_math(panel.title))
    axes.set_xlabel(_escape_math(panel.x_label))
    axes.set_axisbelow(True)
    axes.grid(color="0.88", linewidth=0.7)
    if isinstance(panel, Bars):
        _draw_bars(axes, panel)
        return
    axes.set_ylabel(_escape_math(panel.y_label))
    axes.xaxis.set_major_formatter(lambda steps, _: abbreviate_steps(steps))
    for line in panel.lines:
        _draw_line(axes, line)
    if not any(len(line.band.steps) for line in panel.lines):
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes, color="0.4")
    if panel.lines:
        axes.margins(x=0.02)


def _draw_line(axes: Axes, line: Line) -> None:
    band, color = line.band, COLORS[line.style.color]
    axes.plot(
        band.steps, band.center, markevery=_marker_indices(len(band.steps), line.style.marker), **_line_options(line)
    )
    if band.low is not None and band.high is not None:
        axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.18, linewidth=0)


def _line_options(line: Line) -> dict[str, Any]:
    dash = DASHES[line.style.dash]
    return {
        "color": COLORS[line.style.color],
        "linestyle": (0, dash) if dash else "-",
        "linewidth": 1.7,
        "marker": _MARKER_ORDER[line.style.marker],
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _marker_indices(count: int, offset: int) -> list[int]:
    """Return the indices of the points with a marker; `offset` shifts them, so that markers of lines do not overlap."""
    if count <= _MARKERS_PER_LINE:
        return list(range(count))
    shift = (offset % 4) / 4
    places = (np.arange(_MARKERS_PER_LINE) + 0.15 + 0.7 * shift) / _MARKERS_PER_LINE * (count - 1)
    return [int(place) for place in places]


def _draw_bars(axes: Axes, bars: Bars) -> None:
    places = np.arange(len(bars.names))[::-1]
    axes.barh(places, bars.shares, color=COLORS[0], height=0.6)
    axes.set_yticks(places, [_escape_math(_shorten(name)) for name in bars.names])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")
    for place, share in zip(places, bars.shares, strict=True):
        axes.text(min(share + 0.015, 0.9), place, f"{share:.0%}", va="center", fontsize=9)


def _add_legend(figure: Figure, chart: Chart, columns: int) -> None:
    from matplotlib.lines import Line2D

    caption = _wrap(" ".join((chart.caption, *chart.notes)), 40 + 50 * columns)
    if not chart.lines:
        figure.supxlabel(caption, fontsize=8.5, color="0.35")
        return
    handles = [Line2D([], [], label=_wrap(line.label, _LABEL_WIDTH), **_line_options(line)) for line in chart.lines]
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=_legend_columns(chart, figure.get_figwidth()),
        frameon=False,
        handlelength=3.6,
        title=caption,
    )
    legend.get_title().set(fontsize=8.5, color="0.35")


def _legend_columns(chart: Chart, width_inches: float) -> int:
    """Return the number of legend columns that fit into the width of the figure."""
    widest = max((min(len(line.label), _LABEL_WIDTH) for line in chart.lines), default=0)
    return max(1, min(len(chart.lines), int(width_inches / (_SAMPLE_INCHES + _CHARACTER_INCHES * widest))))


def _wrap(text: str, width: int) -> str:
    return _escape_math("\n".join(textwrap.wrap(text, width)))


def _escape_math(text: str) -> str:
    """Escape dollar signs, which would start a formula."""
    return text.replace("$", r"\$")


def _shorten(name: str) -> str:
    """Shorten a dotted name at its start; its end is more informative."""
    return name if len(name) <= _NAME_WIDTH else f"…{name[-_NAME_WIDTH:]}"
