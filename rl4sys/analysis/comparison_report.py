"""Comparison of groups of runs as tables, JSON and a web page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rl4sys.analysis.charts import comparison_chart
from rl4sys.analysis.comparison import Comparison, GroupSummary, MetricComparison
from rl4sys.analysis.curves import Band
from rl4sys.analysis.formatting import MISSING, format_estimate, format_steps, pluralize
from rl4sys.analysis.history import History
from rl4sys.analysis.markup import Markup, bullets, element, joined, paragraph, section, table, text
from rl4sys.analysis.metric_catalog import higher_is_better, title
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.statistics import CONFIDENCE, Estimate, Floats

_STATISTIC = {"iqm": "IQM", "mean": "mean", "median": "median"}


def summary_headings(comparison: Comparison, compared: MetricComparison) -> list[str]:
    """Return the column headings of the results table of one metric, which has a row per group."""
    value = f"{_STATISTIC[comparison.options.statistic]} [{CONFIDENCE:.0%}]"
    highest = higher_is_better(compared.metric)
    headings = ["group", "seeds", f"final {value}"]
    if highest is None:
        return [*headings, "steps"]
    return [*headings, f"{'best' if highest else 'lowest'} {value}", "reached at", "steps"]


def summary_rows(compared: MetricComparison) -> list[list[str]]:
    return [_summary_row(summary) for summary in compared.summaries]


def _summary_row(summary: GroupSummary) -> list[str]:
    row = [summary.group, str(summary.final.runs), format_estimate(summary.final)]
    if summary.best is not None:
        row += [format_estimate(summary.best), format_steps(summary.best_at)]
    return [*row, format_steps(summary.last_step) if summary.final.runs else MISSING]


def improvement_rows(compared: MetricComparison) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of probabilities of improvement; both are empty if there are none.

    Columns are numbered because the names of groups may be long.
    """
    if not compared.improvements:
        return [], []
    found = {(i.better, i.worse): format_estimate(i.probability) for i in compared.improvements}
    labels = [s.group for s in compared.summaries if any(s.group in pair for pair in found)]
    rows = [
        [f"{number} {label}", *(found.get((label, other), MISSING) for other in labels)]
        for number, label in enumerate(labels, 1)
    ]
    return ["group", *(f"than {number}" for number in range(1, len(labels) + 1))], rows


def difference_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    headings = ["setting", *(group.label for group in comparison.groups)]
    return headings, [[difference.setting, *difference.values] for difference in comparison.differences]


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as a JSON object; missing values are null."""
    return {
        "statistic": comparison.options.statistic,
        "confidence": CONFIDENCE,
        "groups": [{"group": g.label, "runs": [_run_to_json(run) for run in g.runs]} for g in comparison.groups],
        "metrics": {compared.metric: _metric_to_json(compared) for compared in comparison.metrics},
        "differences": {
            d.setting: dict(zip((g.label for g in comparison.groups), d.values, strict=True))
            for d in comparison.differences
        },
        "notes": list(comparison.notes),
    }


def to_page(comparison: Comparison) -> str:
    """Return the comparison as a self-contained web page."""
    chart = comparison_chart(comparison)
    runs = [run for group in comparison.groups for run in group.runs]
    return render(
        f"Comparison: {chart.title}",
        f"{pluralize(len(comparison.groups), 'group')}, {pluralize(len(runs), 'run')}",
        section("Curves", draw_chart(chart)),
        section("Results", *(_metric_section(comparison, compared) for compared in comparison.metrics)),
        section("Settings that differ", _differences(comparison)),
        section("Notes", bullets(comparison.notes)) if comparison.notes else Markup(""),
        section("Runs", provenance_table(runs)),
    )


def provenance_table(runs: Sequence[History]) -> Markup:
    """Return a table with state, start time, commit, package versions, seed and steps of each run."""
    headings = ["run", "state", "started", "commit", "versions", "seed", "steps"]
    return table(headings, [_provenance_row(run) for run in runs], text_columns=5)


def _provenance_row(run: History) -> list[str]:
    packages = run.provenance.get("packages")
    versions = packages if isinstance(packages, dict) else {}
    shown = ", ".join(f"{name} {versions[name]}" for name in ("rl4sys", "torch", "numpy") if name in versions)
    return [
        run.path.name,
        run.state,
        str(run.provenance.get("started", MISSING)).replace("T", " "),
        _short_commit(run.provenance.get("git_hash")),
        shown or MISSING,
        MISSING if run.seed is None else str(run.seed),
        format_steps(run.steps),
    ]


def _short_commit(commit: Any) -> str:
    if not isinstance(commit, str):
        return MISSING
    name, plus, changes = commit.partition("+")
    return name[:10] + plus + changes


def _metric_section(comparison: Comparison, compared: MetricComparison) -> Markup:
    parts = [
        element("h3", text(f"{title(compared.metric)} ({compared.metric})")),
        table(summary_headings(comparison, compared), summary_rows(compared)),
    ]
    headings, rows = improvement_rows(compared)
    if rows:
        parts.append(
            paragraph(
                "Probability that a run of the group in a row ends better than a run of the group in a column:",
                "soft",
            )
        )
        parts.append(table(headings, rows))
    return joined(parts)


def _differences(comparison: Comparison) -> Markup:
    headings, rows = difference_rows(comparison)
    if not rows:
        return paragraph("None except the seed.")
    return table(headings, rows, text_columns=len(headings))


def _run_to_json(run: History) -> dict[str, Any]:
    return {"run": str(run.path), "seed": run.seed, "status": run.state, "steps": run.steps}


def _metric_to_json(compared: MetricComparison) -> dict[str, Any]:
    return {
        "groups": {summary.group: _summary_to_json(summary) for summary in compared.summaries},
        "probability_of_improvement": [
            {"better": i.better, "worse": i.worse, **_estimate_to_json(i.probability)} for i in compared.improvements
        ],
    }


def _summary_to_json(summary: GroupSummary) -> dict[str, Any]:
    return {
        "final": _estimate_to_json(summary.final),
        "best": _estimate_to_json(summary.best) if summary.best else None,
        "best_at": summary.best_at,
        "last_step": summary.last_step,
        "curve": _band_to_json(summary.band),
    }


def _estimate_to_json(estimate: Estimate) -> dict[str, Any]:
    interval = [estimate.interval.low, estimate.interval.high] if estimate.interval else None
    value = estimate.value if math.isfinite(estimate.value) else None
    return {"value": value, "interval": interval, "runs": estimate.runs}


def _band_to_json(band: Band) -> dict[str, list[float] | None]:
    return {
        "steps": band.steps.tolist(),
        "centre": band.center.tolist(),
        "low": _to_list(band.low),
        "high": _to_list(band.high),
    }


def _to_list(values: Floats | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]
