"""Charts as PNG, SVG or PDF files, by matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4sys.analysis.charts import COLOURS, DASHES, Bars, Chart, Line, Panel
from rl4sys.analysis.wording import short_steps
from rl4sys.errors import ConfigError, MissingExtraError, RunError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_MARKS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "X", "plus": "P", "down": "v"}
_MARKER_ORDER = tuple(_MARKS.values())
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",  # text stays text: searchable, and readable by a screen reader
    "svg.hashsalt": "rl4sys",
}
_MARKS_PER_LINE = 8
_LABEL_WIDTH = 44
_NAME_WIDTH = 34
_SAMPLE_INCHES, _LETTER_INCHES = 1.0, 0.09
"""What a line of the legend takes without its label, and each letter of that, at most."""


def check_suffix(path: Path) -> None:
    """Refuse a file that cannot be drawn before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--plot {path} should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def draw(chart: Chart, path: Path) -> None:
    """Write the chart to a file, of the kind that its name ends in."""
    save(lambda: _figure(chart), path)


def save(make: Callable[[], Figure], path: Path) -> None:
    """Make a figure in the style of all our plots and write it to a file, of the kind that its name ends in."""
    check_suffix(path)
    try:
        import matplotlib
    except ModuleNotFoundError as problem:
        raise MissingExtraError(
            "plots need matplotlib, which is not installed: pip install 'rl4sys[train]'"
        ) from problem
    with matplotlib.rc_context(_STYLE):
        figure = make()
        # Neither a date nor a version: the same runs give the same file.
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
    figure.suptitle(_wrapped(chart.title, 36 * columns), fontsize=13, fontweight="bold")
    _add_legend(figure, chart, columns)
    return figure


def _draw_panel(axes: Axes, panel: Panel | Bars) -> None:
    axes.set_title(_plain(panel.title))
    axes.set_xlabel(_plain(panel.x_label))
    axes.set_axisbelow(True)
    axes.grid(color="0.88", linewidth=0.7)
    if isinstance(panel, Bars):
        _draw_bars(axes, panel)
        return
    axes.set_ylabel(_plain(panel.y_label))
    axes.xaxis.set_major_formatter(lambda steps, _: short_steps(steps))
    for line in panel.lines:
        _draw_line(axes, line)
    if not any(len(line.band.steps) for line in panel.lines):
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes, color="0.4")
    if panel.lines:
        axes.margins(x=0.02)


def _draw_line(axes: Axes, line: Line) -> None:
    band, colour = line.band, COLOURS[line.style.colour]
    axes.plot(band.steps, band.centre, markevery=_marked(len(band.steps), line.style.marker), **_look(line))
    if band.low is not None and band.high is not None:
        axes.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.18, linewidth=0)


def _look(line: Line) -> dict[str, Any]:
    dash = DASHES[line.style.dash]
    return {
        "color": COLOURS[line.style.colour],
        "linestyle": (0, dash) if dash else "-",
        "linewidth": 1.7,
        "marker": _MARKER_ORDER[line.style.marker],
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _marked(count: int, offset: int) -> list[int]:
    """Where the marks sit: a few, and not those of all lines at the same steps."""
    if count <= _MARKS_PER_LINE:
        return list(range(count))
    shift = (offset % 4) / 4
    places = (np.arange(_MARKS_PER_LINE) + 0.15 + 0.7 * shift) / _MARKS_PER_LINE * (count - 1)
    return [int(place) for place in places]


def _draw_bars(axes: Axes, bars: Bars) -> None:
    places = np.arange(len(bars.names))[::-1]
    axes.barh(places, bars.shares, color=COLOURS[0], height=0.6)
    axes.set_yticks(places, [_plain(_shortened(name)) for name in bars.names])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")
    for place, share in zip(places, bars.shares, strict=True):
        axes.text(min(share + 0.015, 0.9), place, f"{share:.0%}", va="center", fontsize=9)


def _add_legend(figure: Figure, chart: Chart, columns: int) -> None:
    from matplotlib.lines import Line2D

    caption = _wrapped(" ".join((chart.caption, *chart.notes)), 40 + 50 * columns)
    if not chart.lines:
        figure.supxlabel(caption, fontsize=8.5, color="0.35")
        return
    handles = [Line2D([], [], label=_wrapped(line.label, _LABEL_WIDTH), **_look(line)) for line in chart.lines]
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
    """As many as fit beside one another."""
    widest = max((min(len(line.label), _LABEL_WIDTH) for line in chart.lines), default=0)
    return max(1, min(len(chart.lines), int(width_inches / (_SAMPLE_INCHES + _LETTER_INCHES * widest))))


def _wrapped(text: str, width: int) -> str:
    return _plain("\n".join(textwrap.wrap(text, width)))


def _plain(text: str) -> str:
    """A dollar sign would start a formula."""
    return text.replace("$", r"\$")


def _shortened(name: str) -> str:
    """The end of a setting's dotted name says more than its beginning."""
    return name if len(name) <= _NAME_WIDTH else f"…{name[-_NAME_WIDTH:]}"
