"""Command ``rl4sys export``: write results of runs as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug, split_names
from rl4sys.cli.views.console import ConsoleNotes
from rl4sys.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rl4sys.analysis.export import Table
    from rl4sys.analysis.selection import Selection
    from rl4sys.runs.summary import RunSummary


class TableFormat(StrEnum):
    """File format of a table."""

    latex = "latex"
    csv = "csv"
    json = "json"
    md = "md"


def export(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Run directories or IDs; an experiment name, a folder or a pattern selects several runs.",
            show_default=False,
        ),
    ],
    form: Annotated[TableFormat, typer.Option("--format", help="Format of the table.")] = TableFormat.csv,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; the default is stdout.")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Metrics to include, separated by commas, such as loss/policy.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Write one row per group of runs. Grouping as in compare: config (same settings except the seed), "
            "name, run, argument, or settings such as algorithm.lr.",
            show_default="config if a RUN selects several runs",
        ),
    ] = None,
    statistic: Annotated[
        str | None,
        typer.Option(
            help="Average over the runs of a group: iqm (interquartile mean), mean or median.", show_default="iqm"
        ),
    ] = None,
    completed: Annotated[bool, typer.Option("--completed", help="Export completed runs only.")] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Write all rows of metrics.jsonl instead of final results; csv or json only.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Write the results of runs as a table for a paper, a spreadsheet or a script.

    - `rl4sys export 3f9c --format latex` prints the final metrics of one run; LaTeX needs the package booktabs.

    - `rl4sys export 3f9c 81d0 --format md --output results.md` writes one row per run.

    - `rl4sys export ppo_cartpole dqn_cartpole --format latex` writes one row per experiment, averaged over its seeds.

    - `rl4sys export 3f9c --rows --output curve.csv` writes the learning curve of a run.
    """
    from rl4sys.analysis.export import format_table
    from rl4sys.analysis.selection import select_runs
    from rl4sys.runs.summary import read_summary, with_current_status

    grouping = [name for name, value in (("--by", by), ("--statistic", statistic)) if value is not None]
    if rows and (form in (TableFormat.latex, TableFormat.md) or grouping):
        raise ConfigError(_explain_rows(form, grouping))
    selection = select_runs(runs, root)
    selection = selection.completed() if completed else selection
    _note(selection.notes)
    if not rows and (grouping or any(len(found) > 1 for _, found in selection.chosen)):
        _write(_groups(selection, metrics or "reward", by or "config", statistic or "iqm", form), output)
        return
    records = [with_current_status(read_summary(run.path)) for run in selection.runs]
    table = _rows(records) if rows else _results(records, metrics, form)
    _write(format_table(table, form.value), output)


def _explain_rows(form: TableFormat, grouping: list[str]) -> str:
    if grouping:
        return f"{grouping[0]} groups results and does not apply to --rows; remove one of the two"
    return f"--format {form.value} does not support --rows; use --format csv or --format json"


def _note(notes: Iterable[str]) -> None:
    console = ConsoleNotes(Console(stderr=True))
    for note in notes:
        console.note(note)


def _groups(selection: Selection, metrics: str, by: str, statistic: str, form: TableFormat) -> str:
    """Format a table with one row per group of runs and metric."""
    from rl4sys.analysis.comparison import ComparisonOptions, compare
    from rl4sys.analysis.comparison_table import format_comparison
    from rl4sys.analysis.groups import group_runs

    groups = group_runs(selection.chosen, by)
    comparison = compare(groups, split_names(metrics), ComparisonOptions(statistic))
    _note(comparison.notes)
    return format_comparison(comparison, form.value)


def _results(records: list[RunSummary], metrics: str | None, form: TableFormat) -> Table:
    """Build the results table: one row per run, or one row per metric for a single run in latex or md."""
    from rl4sys.analysis.export import results_table, transpose

    names = [name.strip() for name in metrics.split(",")] if metrics else _all_metrics(records, form)
    for name in names:
        if not any(name in record.outcome.final for record in records):
            known = ", ".join(sorted({name for record in records for name in record.outcome.final})) or "none"
            raise ConfigError(f"none of these runs has the metric {name!r}; available metrics: {known}")
    table = results_table(records, names)
    return transpose(table) if len(records) == 1 and form in (TableFormat.latex, TableFormat.md) else table


def _all_metrics(records: list[RunSummary], form: TableFormat) -> list[str]:
    """Return the default metrics: all, but none for several runs in latex or md, where the table would be too wide."""
    if len(records) > 1 and form in (TableFormat.latex, TableFormat.md):
        return []
    return sorted({name for record in records for name in record.outcome.final})


def _rows(records: list[RunSummary]) -> Table:
    from rl4sys.analysis.export import metrics_table
    from rl4sys.runs.directory import RunDirectory

    found = [(record.path.name, row) for record in records for row in RunDirectory(record.path).metric_rows()]
    return metrics_table(found)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise RunError(f"cannot write {output}: {problem.strerror}; choose another file with --output") from problem
    typer.echo(f"wrote {output}")
