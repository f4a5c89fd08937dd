"""Command ``rl4sys analyze``: report on a run, several seeds, a sweep or a study."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rl4sys.cli.arguments import Debug, split_names
from rl4sys.cli.views.console import ConsoleNotes, print_line, show_table
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.analysis.charts import Chart
    from rl4sys.analysis.history import History
    from rl4sys.analysis.run_analysis import Remark, RunAnalysis
    from rl4sys.analysis.seed_analysis import SeedAnalysis
    from rl4sys.analysis.sweep_report import SweepAnalysis

_MOST_ROWS = 30
_PLOT_WIDTH, _PLOT_HEIGHT = 100, 12


def analyze(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|SWEEP",
            help="Run; several runs or an experiment name for the seeds of an experiment; or directory of a sweep or "
            "study.",
            show_default=False,
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the curves to a .png, .svg or .pdf file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report to a file.")] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…", help="Runs only: metrics to plot, separated by commas.", show_default="main metrics"
        ),
    ] = None,
    threshold: Annotated[
        list[float] | None, typer.Option(help="Runs only: report when the return first reached this value. Repeatable.")
    ] = None,
    smooth: Annotated[int, typer.Option(min=1, help="Window of the moving average over curves, in values.")] = 1,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    debug: Debug = False,
) -> None:
    """Analyze a run, the seeds of an experiment, or a sweep: results, speed, important settings and failures.

    For a run: final and best return, time to reach thresholds, stability, speed, problems and learning curves.
    For several seeds: results and curves with confidence intervals, spread and outliers.
    For a sweep: ranked trials, importance of each setting, and failures grouped by cause.

    - `rl4sys analyze experiments/ppo_cartpole_… --threshold 475 --plot run.png` analyzes a run and plots its curves.

    - `rl4sys analyze ppo_cartpole --html seeds.html` analyzes all seeds of an experiment.

    - `rl4sys analyze experiments/ppo_sweep_… --html sweep.html` writes a report about a sweep.
    """
    from rl4sys.analysis.plots import check_suffix

    if plot is not None:
        check_suffix(plot)
    report = _make_report(runs, root, metrics, threshold, smooth)
    # Write files first, so that they exist even if `| head` or similar closes the output early.
    _write(report, plot, html)
    if as_json:
        typer.echo(json.dumps(report.as_json, allow_nan=False))
    else:
        report.show(Console())


def _make_report(
    arguments: Sequence[str], root: Path, metrics: str | None, threshold: list[float] | None, smooth: int
) -> _Report:
    from rl4sys.analysis.selection import find_folder, select_runs, selects_seeds
    from rl4sys.runs.directory import is_run

    thresholds, names = threshold or [], split_names(metrics) if metrics else []
    if selects_seeds(arguments, root):
        selection = select_runs(arguments, root)
        notes = ConsoleNotes(Console(stderr=True))
        for note in selection.notes:
            notes.note(note)
        return _report_of_seeds(selection.runs, thresholds, names, smooth)
    folder = find_folder(arguments[0], root)
    if is_run(folder):
        return _report_of_run(folder, thresholds, names, smooth)
    _reject_run_options(metrics, threshold)
    return _report_of_sweep(folder)


def _reject_run_options(metrics: str | None, threshold: list[float] | None) -> None:
    given = [name for name, value in (("--metrics", metrics), ("--threshold", threshold)) if value]
    if given:
        raise ConfigError(
            f"{given[0]} applies to runs, not to sweeps; remove {given[0]}. "
            "A sweep is ranked by the metric in its config"
        )


@dataclass(frozen=True)
class _Report:
    """Analysis of a run, several seeds or a sweep, as a chart, HTML page, JSON object and terminal output."""

    chart: Chart
    page: str
    as_json: dict[str, Any]
    show: Callable[[Console], None]


def _report_of_run(folder: Path, thresholds: Sequence[float], metrics: Sequence[str], smooth: int) -> _Report:
    from rl4sys.analysis.history import open_history
    from rl4sys.analysis.run_analysis import analyze_run
    from rl4sys.analysis.run_report import run_chart, to_json, to_page

    history = open_history(folder)
    analysis, chart = analyze_run(history, thresholds), run_chart(history, metrics, smooth)
    return _Report(chart, to_page(analysis, chart), to_json(analysis), partial(_show_run, analysis=analysis))


def _show_run(console: Console, analysis: RunAnalysis) -> None:
    from rl4sys.analysis.run_report import MILESTONE_HEADINGS, fact_rows, milestone_rows

    show_table(console, analysis.run.path.name, ["", ""], fact_rows(analysis), text_columns=2)
    if analysis.milestones:
        show_table(console, "time to reach a return", MILESTONE_HEADINGS, milestone_rows(analysis))
    _show_remarks(console, analysis.remarks)


def _show_remarks(console: Console, remarks: Sequence[Remark]) -> None:
    colors = {"problem": "red", "hint": "yellow", "good": "green"}
    for remark in remarks:
        mark = f"[{colors[remark.kind]}]{remark.kind}[/]"
        console.print(f"{mark}: {escape(remark.text)}", soft_wrap=True, highlight=False)


def _report_of_seeds(
    runs: Sequence[History], thresholds: Sequence[float], metrics: Sequence[str], smooth: int
) -> _Report:
    from rl4sys.analysis.seed_analysis import analyze_seeds
    from rl4sys.analysis.seed_report import seeds_chart, to_json, to_page

    analysis = analyze_seeds(runs, thresholds)
    chart = seeds_chart(analysis, metrics, smooth)
    show = partial(_show_seeds, analysis=analysis, chart=chart)
    return _Report(chart, to_page(analysis, chart), to_json(analysis), show)


def _show_seeds(console: Console, analysis: SeedAnalysis, chart: Chart) -> None:
    from rl4sys.analysis import seed_report as report

    headings, rows = report.result_table(analysis)
    show_table(console, analysis.metric, headings, rows)
    show_table(console, "seeds, best first", report.SEED_HEADINGS, report.seed_rows(analysis), text_columns=3)
    if analysis.reached:
        show_table(console, "time to reach a return", report.REACHED_HEADINGS, report.reached_rows(analysis))
    _show_curve(console, chart)
    _show_remarks(console, analysis.remarks)


def _show_curve(console: Console, chart: Chart) -> None:
    """Plot the first curve of a chart, with the ends of its interval as dotted lines."""
    from rl4sys.analysis.charts import Panel
    from rl4sys.cli.views.text_plots import plot

    panel = chart.panels[0]
    if not isinstance(panel, Panel) or len(panel.lines[0].band.steps) < 2:
        return
    band = panel.lines[0].band
    center, *ends = [
        list(zip(band.steps.tolist(), values.tolist(), strict=True))
        for values in (band.center, band.low, band.high)
        if values is not None
    ]
    console.print(f"[bold]{escape(panel.title)}[/]", highlight=False)
    for line in [*plot(center, min(console.width, _PLOT_WIDTH), _PLOT_HEIGHT, ends), chart.caption, ""]:
        print_line(console, line)


def _report_of_sweep(folder: Path) -> _Report:
    from rl4sys.analysis.sweep_report import analyze_sweep, sweep_chart, to_json, to_page
    from rl4sys.analysis.trials import read_sweep

    analysis = analyze_sweep(read_sweep(folder))
    return _Report(sweep_chart(analysis), to_page(analysis), to_json(analysis), partial(_show_sweep, analysis=analysis))


def _show_sweep(console: Console, analysis: SweepAnalysis) -> None:
    from rl4sys.analysis import sweep_report as report

    console.print(
        f"[bold]{escape(analysis.sweep.path.name)}[/], {escape(report.count_trials(analysis))}", highlight=False
    )
    console.print()
    rows, settings = report.point_rows(analysis), len(analysis.sweep.settings)
    more = f" (the first {_MOST_ROWS} of {len(rows)})" if len(rows) > _MOST_ROWS else ""
    show_table(
        console, f"points, best first{more}", report.point_headings(analysis), rows[:_MOST_ROWS], text_columns=settings
    )
    shares = report.importance_rows(analysis)
    if shares:
        show_table(console, "importance of settings", report.importance_headings(analysis), shares, text_columns=2)
    for note in report.importance_notes(analysis):
        console.print(escape(note), soft_wrap=True, highlight=False)
    failures = report.failure_rows(analysis)
    if failures:
        console.print()
        show_table(console, "failures", report.FAILURE_HEADINGS, failures)


def _write(report: _Report, plot: Path | None, html: Path | None) -> None:
    notes = ConsoleNotes(Console(stderr=True))
    if plot is not None:
        from rl4sys.analysis.plots import draw

        draw(report.chart, plot)
        notes.note(f"curves written to {plot}")
    if html is not None:
        from rl4sys.analysis.page import write_page

        write_page(report.page, html)
        notes.note(f"HTML report written to {html}")
