"""Results of a comparison as a LaTeX, Markdown, CSV or JSON table with one row per group and metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rl4sys.analysis.comparison import Comparison, GroupSummary
from rl4sys.analysis.comparison_report import summary_headings
from rl4sys.analysis.export import Cell, Table, format_table
from rl4sys.analysis.metric_catalog import higher_is_better
from rl4sys.analysis.statistics import Estimate
from rl4sys.errors import ConfigError

_FORMATS = {".tex": "latex", ".md": "md", ".csv": "csv", ".json": "json"}
_NUMBERS = [
    *("group", "metric", "seeds", "statistic", "final", "final_low", "final_high"),
    *("best", "best_low", "best_high", "best_at", "steps"),
]


def format_comparison(comparison: Comparison, form: str) -> str:
    """Format the results of a comparison as `latex`, `md`, `csv` or `json`.

    `latex` and `md` have rounded values with their intervals; `csv` and `json` have unrounded values.
    """
    return format_table(_numbers(comparison) if form in ("csv", "json") else _rounded(comparison), form)


def table_format(path: Path) -> str:
    """Return the format of a table file from its suffix. Raises `ConfigError` for an unknown suffix."""
    if path.suffix.lower() not in _FORMATS:
        *suffixes, last = _FORMATS
        raise ConfigError(
            f"the table file is {str(path)!r}; expected a file name that ends in {', '.join(suffixes)} or {last}"
        )
    return _FORMATS[path.suffix.lower()]


def _rounded(comparison: Comparison) -> Table:
    """Return a table for readers. It has a column for the metric only if there are several metrics."""
    several = len(comparison.metrics) > 1
    # The heading "best" also fits losses, so metrics of which higher values are better determine the headings.
    typical = max(comparison.metrics, key=lambda compared: (None, False, True).index(higher_is_better(compared.metric)))
    directed = higher_is_better(typical.metric) is not None
    group, *headings = summary_headings(comparison, typical)
    rows = [
        [s.group, *([compared.metric] if several else []), *_rounded_row(s, directed=directed)]
        for compared in comparison.metrics
        for s in compared.summaries
    ]
    return Table([group, *(["metric"] if several else []), *headings], rows)


def _rounded_row(summary: GroupSummary, *, directed: bool) -> list[Cell]:
    best: list[Cell] = [summary.best, summary.best_at] if directed else []
    return [summary.final.runs, summary.final, *best, _last_step(summary)]


def _numbers(comparison: Comparison) -> Table:
    statistic = comparison.options.statistic
    rows: list[Sequence[Cell]] = [
        [
            *(s.group, compared.metric, s.final.runs, statistic),
            *(*_ends(s.final), *_ends(s.best), s.best_at, _last_step(s)),
        ]
        for compared in comparison.metrics
        for s in compared.summaries
    ]
    return Table(_NUMBERS, rows)


def _ends(estimate: Estimate | None) -> list[float | None]:
    """Return the value of an estimate and the ends of its interval; None for missing numbers."""
    if estimate is None or not math.isfinite(estimate.value):
        return [None, None, None]
    interval = estimate.interval
    return [estimate.value, *((interval.low, interval.high) if interval else (None, None))]


def _last_step(summary: GroupSummary) -> int | None:
    return summary.last_step if summary.final.runs else None
