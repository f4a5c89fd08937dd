"""``rl4sys compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.notes import Notes
from rl4sys.cli.tables import show_table
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.analysis.comparison import Comparison, MetricComparison


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs, by directory or id; also the name of an experiment, a folder or a pattern, for all its runs.",
            show_default=False,
        ),
    ],
    metrics: Annotated[
        str, typer.Option(help="What to compare, with commas between: reward, loss, a metric's name, or policy/*.")
    ] = "reward",
    by: Annotated[
        str,
        typer.Option(
            help="What makes a group: config (all but the seed), name, run, argument, or settings such as algorithm.lr."
        ),
    ] = "config",
    plot: Annotated[Path | None, typer.Option(help="Write the curves to a file: .png, .svg or .pdf.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a web page with curves and tables to a file.")] = None,
    statistic: Annotated[str, typer.Option(help="Over the runs of a group: iqm, mean or median.")] = "iqm",
    smooth: Annotated[int, typer.Option(min=1, help="Average curves over so many neighbouring values.")] = 1,
    completed: Annotated[bool, typer.Option("--completed", help="Leave out runs that have not completed.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws that intervals are made with.")] = 0,
    root: Annotated[Path, typer.Option(help="Where run directories are.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compare runs: results with intervals, learning curves, and the settings that differ.

    Runs that differ by their seed alone are one group. Its figures are interquartile means, each with the interval in
    which it would lie, nineteen times of twenty, if the seeds were drawn anew.

    - `rl4sys compare ppo_cartpole dqn_cartpole --plot curves.png` compares all runs of two experiments.

    - `rl4sys compare 'ppo_*' --by algorithm.lr --metrics reward,loss --html report.html` compares learning rates.
    """
    from rl4sys.analysis.comparison import Options
    from rl4sys.analysis.comparison import compare as compare_groups
    from rl4sys.analysis.comparison_report import to_json
    from rl4sys.analysis.groups import group_runs
    from rl4sys.analysis.plots import check_suffix
    from rl4sys.analysis.selection import select_runs

    if plot is not None:
        check_suffix(plot)
    selection = select_runs(runs, root)
    if completed:
        selection = selection.completed()
    notes = Notes(Console(stderr=True))
    for note in selection.notes:
        notes.note(note)
    groups = group_runs(selection.chosen, by)
    comparison = compare_groups(groups, names(metrics), Options(statistic, smooth, seed))
    # Files first: whoever cuts the output short still gets them.
    _write(comparison, plot, html, notes)
    if as_json:
        typer.echo(json.dumps(to_json(comparison), allow_nan=False))
    else:
        _show(Console(), comparison)


def names(metrics: str) -> list[str]:
    """What --metrics lists."""
    found = [word.strip() for word in metrics.split(",") if word.strip()]
    if not found:
        raise ConfigError("--metrics names nothing; try reward,loss")
    return found


def _write(comparison: Comparison, plot: Path | None, html: Path | None, notes: Notes) -> None:
    if plot is not None:
        from rl4sys.analysis.charts import comparison_chart
        from rl4sys.analysis.plots import draw

        draw(comparison_chart(comparison), plot)
        notes.note(f"curves written to {plot}")
    if html is not None:
        from rl4sys.analysis.comparison_report import to_page
        from rl4sys.analysis.page import write_page

        write_page(to_page(comparison), html)
        notes.note(f"page written to {html}")


def _show(console: Console, comparison: Comparison) -> None:
    from rl4sys.analysis.comparison_report import difference_rows

    for compared in comparison.metrics:
        _show_metric(console, comparison, compared)
    headings, rows = difference_rows(comparison)
    if rows:
        show_table(console, "settings that differ", headings, rows, words=len(headings))
    elif len(comparison.groups) > 1:
        console.print("the groups have the same settings")
    for note in comparison.notes:
        Notes(console).note(note)


def _show_metric(console: Console, comparison: Comparison, compared: MetricComparison) -> None:
    from rl4sys.analysis.comparison_report import improvement_rows, summary_headings, summary_rows
    from rl4sys.analysis.metric_names import title

    name = f"{title(compared.metric)} ({compared.metric})"
    show_table(console, name, summary_headings(comparison, compared), summary_rows(compared))
    headings, rows = improvement_rows(compared)
    if rows:
        show_table(console, "probability that a run ends better", headings, rows)
