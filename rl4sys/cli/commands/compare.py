"""Command ``rl4sys compare``: compare groups of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug, split_names
from rl4sys.cli.views.console import ConsoleNotes, show_table

if TYPE_CHECKING:
    from rl4sys.analysis.comparison import Comparison, MetricComparison


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Run directories or IDs; an experiment name, a folder or a pattern selects several runs.",
            show_default=False,
        ),
    ],
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAME,…", help="Metrics to compare, separated by commas: reward, loss, a name, or policy/*."
        ),
    ] = "reward",
    by: Annotated[
        str,
        typer.Option(
            help="Grouping of runs: config (same settings except the seed), name, run, argument, or settings such as "
            "algorithm.lr."
        ),
    ] = "config",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the curves to a .png, .svg or .pdf file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report to a file.")] = None,
    statistic: Annotated[
        str, typer.Option(help="Average over the runs of a group: iqm (interquartile mean), mean or median.")
    ] = "iqm",
    smooth: Annotated[int, typer.Option(min=1, help="Window of the moving average over curves, in values.")] = 1,
    completed: Annotated[bool, typer.Option("--completed", help="Compare completed runs only.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap confidence intervals.")] = 0,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    debug: Debug = False,
) -> None:
    """Compare runs: results with confidence intervals, learning curves and differing settings.

    Runs that differ only in their seed form one group. Results are interquartile means with 95 % bootstrap confidence
    intervals over the seeds.

    - `rl4sys compare ppo_cartpole dqn_cartpole --plot curves.png` compares all runs of two experiments.

    - `rl4sys compare 'ppo_*' --by algorithm.lr --metrics reward,loss --html report.html` compares learning rates.
    """
    from rl4sys.analysis.comparison import ComparisonOptions
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
    notes = ConsoleNotes(Console(stderr=True))
    for note in selection.notes:
        notes.note(note)
    groups = group_runs(selection.chosen, by)
    comparison = compare_groups(groups, split_names(metrics), ComparisonOptions(statistic, smooth, seed))
    # Write files first, so that they exist even if `| head` or similar closes the output early.
    _write(comparison, plot, html, notes)
    if as_json:
        typer.echo(json.dumps(to_json(comparison), allow_nan=False))
    else:
        _show(Console(), comparison)


def _write(comparison: Comparison, plot: Path | None, html: Path | None, notes: ConsoleNotes) -> None:
    if plot is not None:
        from rl4sys.analysis.charts import comparison_chart
        from rl4sys.analysis.plots import draw

        draw(comparison_chart(comparison), plot)
        notes.note(f"curves written to {plot}")
    if html is not None:
        from rl4sys.analysis.comparison_report import to_page
        from rl4sys.analysis.page import write_page

        write_page(to_page(comparison), html)
        notes.note(f"HTML report written to {html}")


def _show(console: Console, comparison: Comparison) -> None:
    from rl4sys.analysis.comparison_report import difference_rows

    for compared in comparison.metrics:
        _show_metric(console, comparison, compared)
    headings, rows = difference_rows(comparison)
    if rows:
        show_table(console, "settings that differ", headings, rows, text_columns=len(headings))
    elif len(comparison.groups) > 1:
        console.print("the groups have the same settings")
    for note in comparison.notes:
        ConsoleNotes(console).note(note)


def _show_metric(console: Console, comparison: Comparison, compared: MetricComparison) -> None:
    from rl4sys.analysis.comparison_report import improvement_rows, summary_headings, summary_rows
    from rl4sys.analysis.metric_catalog import title

    name = f"{title(compared.metric)} ({compared.metric})"
    show_table(console, name, summary_headings(comparison, compared), summary_rows(compared))
    headings, rows = improvement_rows(compared)
    if rows:
        show_table(console, "probability that a run ends better", headings, rows)
