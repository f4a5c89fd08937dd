"""What is to be drawn, as data; `plots` draws it into a file and `page` into a web page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl4sys.analysis.comparison import Comparison
from rl4sys.analysis.curves import Band
from rl4sys.analysis.metric_names import title, unit
from rl4sys.analysis.statistics import CONFIDENCE
from rl4sys.analysis.wording import counted

STEPS = "environment steps"
BANDS = f"Line: {{}} over seeds; band: {CONFIDENCE:.0%} bootstrap interval."
"""What is drawn of several runs; the statistic goes in."""
MOST_LINES = 16
"""More lines than this in one picture nobody tells apart."""

# The colours of Okabe and Ito, which people with any kind of colour vision tell apart; the palest come last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (1.5, 1.5), (6, 2, 1.5, 2), (8, 2, 1.5, 2, 1.5, 2))
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down")


@dataclass(frozen=True)
class Style:
    """How a line looks in every panel: no two of the first 280 look the same."""

    colour: int
    dash: int
    marker: int


@dataclass(frozen=True)
class Line:
    """One curve of a panel, with its band if it has one. Without a label it is what the panel's title says."""

    label: str
    style: Style
    band: Band


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Bars:
    """Shares from 0 to 1, one bar each."""

    title: str
    x_label: str
    names: tuple[str, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """A picture: panels under one title, with a line that says what is shown."""

    title: str
    panels: tuple[Panel | Bars, ...]
    caption: str
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """One line of every label, for the legend."""
        panels = [panel for panel in self.panels if isinstance(panel, Panel)]
        return list({line.label: line for panel in panels for line in panel.lines if line.label}.values())


def style(number: int) -> Style:
    return Style(number % len(COLOURS), number % len(DASHES), number % len(MARKERS))


def comparison_chart(comparison: Comparison) -> Chart:
    """A panel for each metric, a line for each group."""
    shown = _shown(comparison)
    panels = []
    for compared in comparison.metrics:
        bands = {summary.group: summary.band for summary in compared.summaries}
        lines = tuple(Line(_legend(comparison, label), style(n), bands[label]) for n, label in enumerate(shown))
        panels.append(Panel(title(compared.metric), STEPS, unit(compared.metric), lines))
    left_out = len(comparison.groups) - len(shown)
    notes = (f"the {left_out} groups with lower results are not drawn",) if left_out else ()
    environments = dict.fromkeys(str(r.setting("environment.name")) for g in comparison.groups for r in g.runs)
    return Chart(", ".join(environments), tuple(panels), caption(comparison), notes)


def caption(comparison: Comparison) -> str:
    """What lines and bands are."""
    runs = max(len(group.runs) for group in comparison.groups)
    words = {"iqm": "interquartile mean", "mean": "mean", "median": "median"}[comparison.options.statistic]
    window = comparison.options.smooth
    smoothed = f" Smoothed over {window} neighbouring values." if window > 1 else ""
    return (BANDS.format(words) if runs > 1 else "One run each.") + smoothed


def _shown(comparison: Comparison) -> Sequence[str]:
    """The groups that are drawn: all, or those that ended best."""
    labels = [group.label for group in comparison.groups]
    if len(labels) <= MOST_LINES:
        return labels
    ends = {summary.group: summary.final.value for summary in comparison.metrics[0].summaries}
    kept = sorted(labels, key=lambda label: ends[label] if ends[label] == ends[label] else -float("inf"))[-MOST_LINES:]
    return [label for label in labels if label in kept]


def _legend(comparison: Comparison, label: str) -> str:
    group = next(group for group in comparison.groups if group.label == label)
    return f"{label} ({counted(len(group.runs), 'seed')})"
