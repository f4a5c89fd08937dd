"""Analysis of a run as tables, a chart, JSON and a web page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl4sys.analysis.charts import STEPS, Chart, Line, Panel, style
from rl4sys.analysis.comparison_report import provenance_table
from rl4sys.analysis.curves import Band, Curve, align, smooth
from rl4sys.analysis.formatting import MISSING, format_number, format_steps
from rl4sys.analysis.history import History
from rl4sys.analysis.markup import element, paragraph, section, table, text
from rl4sys.analysis.metric_catalog import resolve, title, unit
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.run_analysis import RunAnalysis, format_milestone_time, speed
from rl4sys.metric_names import RETURN_METRICS

_SHOWN = ("policy/entropy", "policy/kl", "value/explained_variance", "value/mean", "learner/staleness")


def fact_rows(analysis: RunAnalysis) -> list[list[str]]:
    """Return rows (name, value) with the key figures of a run."""
    run, curve, rate = analysis.run, analysis.curve, speed(analysis.run)
    rows = [
        ["algorithm, environment", f"{run.setting('algorithm.name')}, {run.setting('environment.name')}"],
        ["seed, state", f"{MISSING if run.seed is None else run.seed}, {run.state}"],
        ["steps", format_steps(run.steps) + (f" ({rate:,.0f} per second)" if rate else "")],
    ]
    if curve is not None:
        best, best_at = curve.best(highest=True)
        rows.append([f"final {analysis.metric}", f"{format_number(curve.final)} at step {curve.steps[-1]:,}"])
        rows.append([f"best {analysis.metric}", f"{format_number(best)} at step {best_at:,}"])
    if analysis.drop is not None:
        rows.append(["largest drop", _format_drop(analysis)])
    return rows


def milestone_rows(analysis: RunAnalysis) -> list[list[str]]:
    """Return a row per milestone with its name, return, step and time."""
    return [
        [
            milestone.name,
            format_number(milestone.value),
            "never" if milestone.step is None else format_steps(milestone.step),
            format_milestone_time(milestone),
        ]
        for milestone in analysis.milestones
    ]


MILESTONE_HEADINGS = ["return", "value", "first at step", "time"]


def run_chart(run: History, wanted: Sequence[str] = (), window: int = 1) -> Chart:
    """Return a chart of returns, losses and other learning curves, or of the metrics `wanted`."""
    names = resolve(wanted, [run]) if wanted else default_metrics([run]) or [RETURN_METRICS[0]]
    panels = [_panel(run, names_of_panel, window) for names_of_panel in _panels(names)]
    smoothed = f"Smoothed over {window} neighboring values." if window > 1 else ""
    return Chart(f"{run.path.name} ({run.setting('environment.name')})", tuple(panels), smoothed)


def to_json(analysis: RunAnalysis) -> dict[str, Any]:
    run, curve, drop = analysis.run, analysis.curve, analysis.drop
    best = curve.best(highest=True) if curve else None
    return {
        "run": str(run.path),
        "status": run.state,
        "steps": run.steps,
        "steps_per_second": speed(run),
        "metric": analysis.metric,
        "final": curve.final if curve else None,
        "best": best[0] if best else None,
        "best_at": best[1] if best else None,
        "largest_drop": vars(drop) if drop else None,
        "reached": [vars(milestone) for milestone in analysis.milestones],
        "remarks": [{"kind": remark.kind, "words": remark.text} for remark in analysis.remarks],
    }


def to_page(analysis: RunAnalysis, chart: Chart) -> str:
    run = analysis.run
    remarks = [element("li", element("b", text(f"{remark.kind}: ")), text(remark.text)) for remark in analysis.remarks]
    return render(
        f"Run {run.path.name}",
        f"{run.setting('algorithm.name')} in {run.setting('environment.name')}",
        section("Results", table(["", ""], fact_rows(analysis), text_columns=2), element("ul", *remarks)),
        section("Curves", draw_chart(chart)),
        section(
            "Milestones",
            table(MILESTONE_HEADINGS, milestone_rows(analysis))
            if analysis.milestones
            else paragraph("No returns yet."),
        ),
        section("Provenance", provenance_table([run])),
    )


def _format_drop(analysis: RunAnalysis) -> str:
    drop = analysis.drop
    assert drop is not None  # called only for a run with a curve
    if drop.size == 0:
        return "none"
    return (
        f"{format_number(drop.size)}: from {format_number(drop.best)} at step {drop.best_at:,} "
        f"to {format_number(drop.worst)} at step {drop.worst_at:,}"
    )


def default_metrics(runs: Sequence[History]) -> list[str]:
    """Return the names of the metrics to show, most important first; an empty list if the runs have none of them."""
    known = dict.fromkeys(name for run in runs for name in run.curves)
    losses = [name for name in known if name.startswith("loss/")]
    return [name for name in (*RETURN_METRICS, *losses, *_SHOWN) if name in known]


def _panels(names: Sequence[str]) -> list[list[str]]:
    """Group metrics by panel: evaluation and training returns share one panel, each other metric has its own panel."""
    together = [name for name in names if name in RETURN_METRICS]
    alone = [[name] for name in names if name not in RETURN_METRICS]
    return [together, *alone] if together else alone


def _panel(run: History, names: Sequence[str], window: int) -> Panel:
    labels = {"evaluation/return": "evaluation (greedy)", "episode/return": "training episodes (exploring)"}
    lines = []
    for name in names:
        label = labels.get(name, "")
        number = list(labels).index(name) if name in labels else 0
        curve = run.curves.get(name)
        lines.append(Line(label, style(number), _band(smooth(curve, window) if curve else None)))
    heading = "Return" if len(names) > 1 else title(names[0])
    return Panel(heading, STEPS, unit(names[0]), tuple(lines))


def _band(curve: Curve | None) -> Band:
    if curve is None or not len(curve):
        return Band(np.empty(0), np.empty(0), None, None, 0)
    at, values = align([curve])
    return Band(at, values[0], None, None, 1)
