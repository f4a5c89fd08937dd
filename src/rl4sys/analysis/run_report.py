"""The analysis of a run as rows to print, as a chart, as JSON and as a web page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl4sys.analysis.charts import STEPS, Chart, Line, Panel, style
from rl4sys.analysis.comparison_report import provenance_table
from rl4sys.analysis.curves import Band, Curve, align, smooth
from rl4sys.analysis.history import History
from rl4sys.analysis.markup import element, paragraph, section, table, text
from rl4sys.analysis.metric_names import resolve, title, unit
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.run_analysis import RunAnalysis, in_seconds, speed
from rl4sys.analysis.wording import NOTHING, figure, steps
from rl4sys.experiment.outcome import REWARDS

_SHOWN = ("policy/entropy", "policy/kl", "value/explained_variance", "value/mean", "learner/staleness")


def fact_rows(analysis: RunAnalysis) -> list[list[str]]:
    """The run in a few figures."""
    run, curve, pace = analysis.run, analysis.curve, speed(analysis.run)
    rows = [
        ["algorithm, environment", f"{run.setting('algorithm.name')}, {run.setting('environment.name')}"],
        ["seed, state", f"{NOTHING if run.seed is None else run.seed}, {run.state}"],
        ["steps", steps(run.steps) + (f" ({pace:,.0f} a second)" if pace else "")],
    ]
    if curve is not None:
        best, best_at = curve.best(highest=True)
        rows.append([f"final {analysis.metric}", f"{figure(curve.final)} at step {curve.steps[-1]:,}"])
        rows.append([f"best {analysis.metric}", f"{figure(best)} at step {best_at:,}"])
    if analysis.drop is not None:
        rows.append(["largest drop", _drop_in_words(analysis)])
    return rows


def reached_rows(analysis: RunAnalysis) -> list[list[str]]:
    """When each return was first reached."""
    return [
        [
            reached.name,
            figure(reached.value),
            "never" if reached.step is None else steps(reached.step),
            in_seconds(reached),
        ]
        for reached in analysis.reached
    ]


REACHED_HEADINGS = ["return", "value", "first at step", "time"]


def run_chart(run: History, wanted: Sequence[str] = (), window: int = 1) -> Chart:
    """The return, then losses and what else tells how learning went; or the metrics that ``wanted`` names."""
    names = resolve(wanted, [run]) if wanted else _usual(run)
    panels = [_panel(run, names_of_panel, window) for names_of_panel in _panels(names)]
    smoothed = f"Smoothed over {window} neighbouring values." if window > 1 else ""
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
        "reached": [vars(reached) for reached in analysis.reached],
        "remarks": [vars(remark) for remark in analysis.remarks],
    }


def to_page(analysis: RunAnalysis, chart: Chart) -> str:
    run = analysis.run
    remarks = [element("li", element("b", text(f"{remark.kind}: ")), text(remark.words)) for remark in analysis.remarks]
    return render(
        f"Run {run.path.name}",
        f"{run.setting('algorithm.name')} in {run.setting('environment.name')}",
        section("What it came to", table(["", ""], fact_rows(analysis), words=2), element("ul", *remarks)),
        section("Curves", draw_chart(chart)),
        section(
            "When returns were reached",
            table(REACHED_HEADINGS, reached_rows(analysis)) if analysis.reached else paragraph("No returns yet."),
        ),
        section("Made with", provenance_table([run])),
    )


def _drop_in_words(analysis: RunAnalysis) -> str:
    drop = analysis.drop
    assert drop is not None  # asked only of a run with a curve
    if drop.size == 0:
        return "none"
    return (
        f"{figure(drop.size)}: from {figure(drop.best)} at step {drop.best_at:,} to {figure(drop.worst)} at step "
        f"{drop.worst_at:,}"
    )


def _usual(run: History) -> list[str]:
    """In the order in which people look at them."""
    losses = [name for name in run.curves if name.startswith("loss/")]
    return [name for name in (*REWARDS, *losses, *_SHOWN) if name in run.curves] or [REWARDS[0]]


def _panels(names: Sequence[str]) -> list[list[str]]:
    """Returns of evaluations and of training share a panel; every other metric has its own."""
    together = [name for name in names if name in REWARDS]
    alone = [[name] for name in names if name not in REWARDS]
    return [together, *alone] if together else alone


def _panel(run: History, names: Sequence[str], window: int) -> Panel:
    labels = {"evaluation/return": "evaluations, greedy", "episode/return": "training episodes, exploring"}
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
