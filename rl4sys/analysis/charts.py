"""Descriptions of charts. Module `plots` draws a chart to an image file, module `page` to a web page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl4sys.analysis.comparison import Comparison
from rl4sys.analysis.curves import Band
from rl4sys.analysis.formatting import pluralize
from rl4sys.analysis.metric_catalog import title, unit
from rl4sys.analysis.statistics import CONFIDENCE

STEPS = "environment steps"
BANDS = f"Line: {{}} over seeds; band: {CONFIDENCE:.0%} bootstrap interval."
"""Template of a caption that explains lines and bands over several runs; the placeholder is the statistic."""
MAX_LINES = 16
"""Maximum number of lines in a chart. More lines are hard to distinguish."""

# Palette of Okabe and Ito, distinguishable with any color vision; the palest colors come last.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (1.5, 1.5), (6, 2, 1.5, 2), (8, 2, 1.5, 2, 1.5, 2))
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down")


@dataclass(frozen=True)
class Style:
    """Color, dash pattern and marker of a line, as indices. The first 280 styles are distinct."""

    color: int
    dash: int
    marker: int


@dataclass(frozen=True)
class Line:
    """Curve in a panel, with an optional confidence band. A curve without a label is described by the panel title."""

    label: str
    style: Style
    band: Band


@dataclass(frozen=True)
class Panel:
    """Curves in one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Bars:
    """Bar chart of shares from 0 to 1."""

    title: str
    x_label: str
    names: tuple[str, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Chart with one or more panels, a title, a caption and notes."""

    title: str
    panels: tuple[Panel | Bars, ...]
    caption: str
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """Return one line per label, for the legend."""
        panels = [panel for panel in self.panels if isinstance(panel, Panel)]
        return list({line.label: line for panel in panels for line in panel.lines if line.label}.values())


def style(number: int) -> Style:
    """Return the style of line `number`, counted from 0."""
    return Style(number % len(COLORS), number % len(DASHES), number % len(MARKERS))


def comparison_chart(comparison: Comparison) -> Chart:
    """Return a chart with a panel per metric and a line per group."""
    shown = _shown(comparison)
    panels = []
    for compared in comparison.metrics:
        bands = {summary.group: summary.band for summary in compared.summaries}
        lines = tuple(Line(_legend(comparison, label), style(n), bands[label]) for n, label in enumerate(shown))
        panels.append(Panel(title(compared.metric), STEPS, unit(compared.metric), lines))
    hidden = len(comparison.groups) - len(shown)
    notes = (f"the {hidden} groups with lower results are not drawn",) if hidden else ()
    environments = dict.fromkeys(str(r.setting("environment.name")) for g in comparison.groups for r in g.runs)
    return Chart(", ".join(environments), tuple(panels), caption(comparison), notes)


def caption(comparison: Comparison) -> str:
    """Return a caption that explains the lines and bands of a comparison."""
    runs = max(len(group.runs) for group in comparison.groups)
    statistic = {"iqm": "interquartile mean", "mean": "mean", "median": "median"}[comparison.options.statistic]
    window = comparison.options.smooth
    smoothed = f" Smoothed over {window} neighboring values." if window > 1 else ""
    return (BANDS.format(statistic) if runs > 1 else "One run per group.") + smoothed


def _shown(comparison: Comparison) -> Sequence[str]:
    """Return the labels of the groups to draw: all, or the `MAX_LINES` groups with the highest final values."""
    labels = [group.label for group in comparison.groups]
    if len(labels) <= MAX_LINES:
        return labels
    ends = {summary.group: summary.final.value for summary in comparison.metrics[0].summaries}
    kept = sorted(labels, key=lambda label: ends[label] if ends[label] == ends[label] else -float("inf"))[-MAX_LINES:]
    return [label for label in labels if label in kept]


def _legend(comparison: Comparison, label: str) -> str:
    group = next(group for group in comparison.groups if group.label == label)
    return f"{label} ({pluralize(len(group.runs), 'seed')})"
