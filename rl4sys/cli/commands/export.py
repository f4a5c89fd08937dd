"""``rl4sys export``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl4sys.cli.arguments import Debug
from rl4sys.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rl4sys.analysis.export import Table
    from rl4sys.runs.summary import RunSummary


class Form(StrEnum):
    """File format of a table."""

    latex = "latex"
    csv = "csv"
    json = "json"
    md = "md"


def export(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Run directories, run IDs, or prefixes of either.", show_default=False),
    ],
    form: Annotated[Form, typer.Option("--format", help="Format of the table.")] = Form.csv,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; the default is stdout.")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Metrics to include, separated by commas, such as loss/policy.")
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Write all rows of metrics.jsonl instead of final results; csv or json only.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Write the results of runs as a table for a paper, a spreadsheet or a script.

    - `rl4sys export 3f9c --format latex` prints the final metrics of one run; LaTeX needs the package booktabs.

    - `rl4sys export 3f9c 81d0 --format md --output results.md` writes one row per run.

    - `rl4sys export 3f9c --rows --output curve.csv` writes the learning curve of a run.
    """
    from rl4sys.analysis.export import format_table
    from rl4sys.runs.query import find_run
    from rl4sys.runs.summary import read_summary, with_current_status

    records = [with_current_status(read_summary(find_run(text, root))) for text in runs]
    if rows and form in (Form.latex, Form.md):
        raise ConfigError(f"--rows cannot be written as {form.value}; use --format csv or --format json")
    table = _rows(records) if rows else _results(records, metrics, form)
    _write(format_table(table, form.value), output)


def _results(records: list[RunSummary], metrics: str | None, form: Form) -> Table:
    """Build the results table: one row per run, or one row per metric for a single run in latex or md."""
    from rl4sys.analysis.export import results_table, transpose

    names = [name.strip() for name in metrics.split(",")] if metrics else _all_metrics(records, form)
    for name in names:
        if not any(name in record.outcome.final for record in records):
            known = ", ".join(sorted({name for record in records for name in record.outcome.final})) or "none"
            raise ConfigError(f"none of these runs has the metric {name!r}; available metrics: {known}")
    table = results_table(records, names)
    return transpose(table) if len(records) == 1 and form in (Form.latex, Form.md) else table


def _all_metrics(records: list[RunSummary], form: Form) -> list[str]:
    """Return the metrics to export by default: all, or none for several runs in latex or md, whose pages are narrow."""
    if len(records) > 1 and form in (Form.latex, Form.md):
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
