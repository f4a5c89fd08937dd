"""``rl4sys export``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl4sys.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rl4sys.analysis.export import Table
    from rl4sys.experiment.record import RunRecord


class Form(StrEnum):
    """What a table is written as."""

    latex = "latex"
    csv = "csv"
    json = "json"
    md = "md"


def export(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Runs: directories, ids, or the beginning of either.", show_default=False),
    ],
    form: Annotated[Form, typer.Option("--format", help="What to write.")] = Form.csv,
    output: Annotated[Path | None, typer.Option(help="The file to write, instead of the terminal.")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Final values to add, such as loss/policy.")
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Write every row of metrics.jsonl instead of results; as csv or json.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Write the results of runs as a table for a paper, a spreadsheet or a script.

    - `rl4sys export 3f9c --format latex` writes all final values of one run; the table needs the package booktabs.

    - `rl4sys export 3f9c 81d0 --format md --output results.md` writes a line for each run.

    - `rl4sys export 3f9c --rows --output curve.csv` writes its learning curve.
    """
    from rl4sys.analysis.export import written
    from rl4sys.experiment.record import read_record, with_true_status
    from rl4sys.experiment.store import find_run

    records = [with_true_status(read_record(find_run(text, root))) for text in runs]
    if rows and form in (Form.latex, Form.md):
        raise ConfigError(f"--rows gives a learning curve, which is too long for {form.value}; write csv or json")
    table = _rows(records) if rows else _results(records, metrics, form)
    _write(written(table, form.value), output)


def _results(records: list[RunRecord], metrics: str | None, form: Form) -> Table:
    """One run to be read is a line for each value; several, or one for a script, a line for each run."""
    from rl4sys.analysis.export import results_table, upright

    names = [name.strip() for name in metrics.split(",")] if metrics else _all_metrics(records, form)
    for name in names:
        if not any(name in record.outcome.final for record in records):
            known = ", ".join(sorted({name for record in records for name in record.outcome.final})) or "none"
            raise ConfigError(f"none of these runs has the metric {name!r}; there are: {known}")
    table = results_table(records, names)
    return upright(table) if len(records) == 1 and form in (Form.latex, Form.md) else table


def _all_metrics(records: list[RunRecord], form: Form) -> list[str]:
    """A page has room for those of one run; a spreadsheet for all."""
    if len(records) > 1 and form in (Form.latex, Form.md):
        return []
    return sorted({name for record in records for name in record.outcome.final})


def _rows(records: list[RunRecord]) -> Table:
    from rl4sys.analysis.export import rows_table
    from rl4sys.experiment.metrics import read_metrics
    from rl4sys.experiment.record import METRICS

    found = [
        (record.path.name, row)
        for record in records
        if (record.path / METRICS).is_file()
        for row in read_metrics(record.path / METRICS)
    ]
    return rows_table(found)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise RunError(f"cannot write {output}: {problem.strerror}; choose another place with --output") from problem
    typer.echo(f"wrote {output}")
