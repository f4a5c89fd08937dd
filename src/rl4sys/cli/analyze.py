"""``rl4sys analyze``."""

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

from rl4sys.cli.compare import names
from rl4sys.cli.notes import Notes
from rl4sys.cli.tables import show_table
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.analysis.charts import Chart
    from rl4sys.analysis.run_analysis import RunAnalysis
    from rl4sys.analysis.sweep_report import SweepAnalysis

_MOST_ROWS = 30


def analyze(
    run: Annotated[
        str, typer.Argument(metavar="RUN|SWEEP", help="A run, or the folder of a sweep or study.", show_default=False)
    ],
    plot: Annotated[Path | None, typer.Option(help="Write the curves to a file: .png, .svg or .pdf.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a web page with all of it to a file.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Of a run: metrics to draw, with commas between; the usual ones if not given.")
    ] = None,
    threshold: Annotated[
        list[float] | None, typer.Option(help="Of a run: a return, to be told when it was reached; may be repeated.")
    ] = None,
    smooth: Annotated[int, typer.Option(min=1, help="Average curves over so many neighbouring values.")] = 1,
    root: Annotated[Path, typer.Option(help="Where run directories are.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Say how a run or a sweep went: results, when they were reached, what mattered, what went wrong.

    Of a run: how good, how soon, how steady and how fast it was, its failures in words, its curves. Of a sweep: its
    trials by result, how much of the differences each setting explains, and failures by reason.

    - `rl4sys analyze experiments/ppo_cartpole_… --threshold 475 --plot run.png`

    - `rl4sys analyze experiments/ppo_sweep_… --html sweep.html`
    """
    from rl4sys.analysis.plots import check_suffix
    from rl4sys.analysis.selection import find_folder
    from rl4sys.experiment.record import is_run

    if plot is not None:
        check_suffix(plot)
    folder = find_folder(run, root)
    if is_run(folder):
        report = _report_of_run(folder, threshold or [], names(metrics) if metrics else [], smooth)
    else:
        _refuse_options_of_runs(metrics, threshold)
        report = _report_of_sweep(folder)
    # Files first: whoever cuts the output short still gets them.
    _write(report, plot, html)
    if as_json:
        typer.echo(json.dumps(report.as_json, allow_nan=False))
    else:
        report.show(Console())


def _refuse_options_of_runs(metrics: str | None, threshold: list[float] | None) -> None:
    given = [name for name, value in (("--metrics", metrics), ("--threshold", threshold)) if value]
    if given:
        raise ConfigError(f"{given[0]} goes with a run; a sweep is judged by the metric that its file names")


@dataclass(frozen=True)
class _Report:
    """What there is to say of a run or a sweep, in every form."""

    chart: Chart
    page: str
    as_json: dict[str, Any]
    show: Callable[[Console], None]


def _report_of_run(folder: Path, thresholds: Sequence[float], metrics: Sequence[str], smooth: int) -> _Report:
    from rl4sys.analysis.history import open_history
    from rl4sys.analysis.run_analysis import analyse_run
    from rl4sys.analysis.run_report import run_chart, to_json, to_page

    history = open_history(folder)
    analysis, chart = analyse_run(history, thresholds), run_chart(history, metrics, smooth)
    return _Report(chart, to_page(analysis, chart), to_json(analysis), partial(_show_run, analysis=analysis))


def _show_run(console: Console, analysis: RunAnalysis) -> None:
    from rl4sys.analysis.run_report import REACHED_HEADINGS, fact_rows, reached_rows

    show_table(console, analysis.run.path.name, ["", ""], fact_rows(analysis), words=2)
    if analysis.reached:
        show_table(console, "when returns were reached", REACHED_HEADINGS, reached_rows(analysis))
    colours = {"problem": "red", "hint": "yellow", "good": "green"}
    for remark in analysis.remarks:
        mark = f"[{colours[remark.kind]}]{remark.kind}[/]"
        console.print(f"{mark}: {escape(remark.words)}", soft_wrap=True, highlight=False)


def _report_of_sweep(folder: Path) -> _Report:
    from rl4sys.analysis.sweep_report import analyse_sweep, sweep_chart, to_json, to_page
    from rl4sys.analysis.trials import read_sweep

    analysis = analyse_sweep(read_sweep(folder))
    return _Report(sweep_chart(analysis), to_page(analysis), to_json(analysis), partial(_show_sweep, analysis=analysis))


def _show_sweep(console: Console, analysis: SweepAnalysis) -> None:
    from rl4sys.analysis import sweep_report as report

    console.print(f"[bold]{escape(analysis.sweep.path.name)}[/], {escape(report.outline(analysis))}", highlight=False)
    console.print()
    rows, settings = report.point_rows(analysis), len(analysis.sweep.settings)
    more = f" (the first {_MOST_ROWS} of {len(rows)})" if len(rows) > _MOST_ROWS else ""
    show_table(console, f"points, best first{more}", report.point_headings(analysis), rows[:_MOST_ROWS], words=settings)
    shares = report.importance_rows(analysis)
    if shares:
        show_table(console, "which settings mattered", report.importance_headings(analysis), shares, words=2)
    for words in report.importance_in_words(analysis):
        console.print(escape(words), soft_wrap=True, highlight=False)
    failures = report.failure_rows(analysis)
    if failures:
        console.print()
        show_table(console, "failures", report.FAILURE_HEADINGS, failures)


def _write(report: _Report, plot: Path | None, html: Path | None) -> None:
    notes = Notes(Console(stderr=True))
    if plot is not None:
        from rl4sys.analysis.plots import draw

        draw(report.chart, plot)
        notes.note(f"curves written to {plot}")
    if html is not None:
        from rl4sys.analysis.page import write_page

        write_page(report.page, html)
        notes.note(f"page written to {html}")
