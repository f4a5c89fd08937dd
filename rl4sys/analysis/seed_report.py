"""Analysis of several seeds as tables, a chart, JSON and a web page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rl4sys.analysis import comparison_report, run_report
from rl4sys.analysis.charts import Chart, comparison_chart
from rl4sys.analysis.comparison import ComparisonOptions, compare
from rl4sys.analysis.comparison_report import provenance_table, summary_headings, summary_rows
from rl4sys.analysis.formatting import MISSING, format_number, format_steps, pluralize
from rl4sys.analysis.markup import element, paragraph, section, table, text
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.run_analysis import RunAnalysis
from rl4sys.analysis.seed_analysis import SeedAnalysis
from rl4sys.metric_names import REWARD

SEED_HEADINGS = ["run", "seed", "state", "final", "best", "reached at", "steps"]
REACHED_HEADINGS = ["return", "value", "seeds", "median first step"]


def result_table(analysis: SeedAnalysis) -> tuple[list[str], list[list[str]]]:
    """Return headings and the row with the results over all seeds."""
    compared = analysis.comparison.metrics[0]
    return summary_headings(analysis.comparison, compared), summary_rows(compared)


def seed_rows(analysis: SeedAnalysis) -> list[list[str]]:
    """Return a row per run, best final return first."""
    ranked = sorted(analysis.runs, key=lambda run: run.curve.final if run.curve else -float("inf"), reverse=True)
    return [_seed_row(run) for run in ranked]


def reached_rows(analysis: SeedAnalysis) -> list[list[str]]:
    return [
        [
            reached.name,
            format_number(reached.value),
            f"{reached.seeds} of {len(analysis.runs)}",
            format_steps(reached.step),
        ]
        for reached in analysis.reached
    ]


def seeds_chart(analysis: SeedAnalysis, wanted: Sequence[str] = (), window: int = 1) -> Chart:
    """Return a chart of the returns and other learning curves over all seeds, or of the metrics `wanted`."""
    metrics = wanted or run_report.default_metrics(analysis.group.runs) or [REWARD]
    return comparison_chart(compare([analysis.group], metrics, ComparisonOptions(smooth=window)))


def to_json(analysis: SeedAnalysis) -> dict[str, Any]:
    """Return the analysis as a JSON object: the comparison of one group, with results of each run and remarks."""
    return {
        **comparison_report.to_json(analysis.comparison),
        "metric": analysis.metric,
        "runs": [run_report.to_json(run) for run in analysis.runs],
        "reached": [asdict(reached) for reached in analysis.reached],
        "remarks": [{"kind": remark.kind, "words": remark.text} for remark in analysis.remarks],
    }


def to_page(analysis: SeedAnalysis, chart: Chart) -> str:
    headings, rows = result_table(analysis)
    run = analysis.group.runs[0]
    remarks = [element("li", element("b", text(f"{remark.kind}: ")), text(remark.text)) for remark in analysis.remarks]
    return render(
        f"Seeds of {analysis.group.label}",
        f"{run.setting('algorithm.name')} in {run.setting('environment.name')}, {pluralize(len(analysis.runs), 'run')}",
        section("Results", paragraph(analysis.metric, "soft"), table(headings, rows), element("ul", *remarks)),
        section("Curves", draw_chart(chart)),
        section("Seeds", table(SEED_HEADINGS, seed_rows(analysis), text_columns=3)),
        section(
            "Reached returns",
            table(REACHED_HEADINGS, reached_rows(analysis)) if analysis.reached else paragraph("No thresholds."),
        ),
        section("Provenance", provenance_table(analysis.group.runs)),
    )


def _seed_row(analysis: RunAnalysis) -> list[str]:
    run, curve = analysis.run, analysis.curve
    best, best_at = curve.best(highest=True) if curve else (None, None)
    return [
        run.path.name,
        MISSING if run.seed is None else str(run.seed),
        run.state,
        format_number(curve.final if curve else None),
        format_number(best),
        format_steps(best_at),
        format_steps(run.steps),
    ]
