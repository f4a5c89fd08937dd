"""Export of results as a LaTeX, Markdown, CSV or JSON table."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rl4sys.analysis.formatting import format_estimate, format_number, format_steps
from rl4sys.analysis.statistics import Estimate
from rl4sys.runs.summary import RunSummary

Cell: TypeAlias = str | float | Estimate | None
"""Value in a table. Only latex and md have estimates; they write the interval behind the value."""

_FIELDS = ("algorithm", "environment", "seed", "status", "steps", "reward", "best_reward")
_INTEGERS = ("seed", "seeds")
_STEPS = ("steps", "reached at")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "—": "---",
    "→": r"$\rightarrow$",
    **{letter: f"\\{letter}" for letter in "&%$#_"},
}
_LATEX_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True)
class Table:
    """Headings and rows of a table. The first column is text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def results_table(runs: Sequence[RunSummary], metrics: Sequence[str]) -> Table:
    """Return a table with one row per run: the run's summary and the last values of `metrics`."""
    rows = [
        [run.path.name, *(getattr(run, field) for field in _FIELDS), *(run.outcome.final.get(name) for name in metrics)]
        for run in runs
    ]
    return Table(["run", *_FIELDS, *metrics], rows)


def transpose(table: Table) -> Table:
    """Turn a table with one row into a table with one row per column."""
    [row] = table.rows
    return Table(["", str(row[0])], list(zip(table.headings[1:], row[1:], strict=True)))


def metrics_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return a table of metrics rows with the run name in the first column. Missing metrics are None."""
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    return Table(["run", *names], [[run, *(row.get(name) for name in names)] for run, row in rows])


def format_table(table: Table, form: str) -> str:
    """Format a table as `latex`, `csv`, `json` or `md`."""
    writers = {"latex": _latex, "csv": _csv, "json": _json, "md": _markdown}
    return writers[form](table)


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows([["" if cell is None else cell for cell in row] for row in table.rows])
    return text.getvalue()


def _json(table: Table) -> str:
    """Format a table as a JSON list with one object per row. NaN and infinity become null."""
    objects = [dict(zip(table.headings, map(_finite_or_none, row), strict=True)) for row in table.rows]
    return json.dumps(objects, indent=1) + "\n"


def _finite_or_none(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _markdown(table: Table) -> str:
    lines = [table.headings, ["---" if is_text else "---:" for is_text in _text_columns(table)], *_format_rows(table)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _latex(table: Table) -> str:
    rows = [list(map(_escape_latex, table.headings)), *map(_latex_row, table.rows, _format_rows(table))]
    head, *body = [" & ".join(row) + r" \\" for row in rows]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{''.join('l' if is_text else 'r' for is_text in _text_columns(table))}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex_row(cells: Sequence[Cell], texts: Sequence[str]) -> list[str]:
    return [
        re.sub(r"-[\d.,e+-]*\d", lambda number: _escape_latex(number[0]), text)
        if isinstance(cell, Estimate)
        else _escape_latex(text)
        for cell, text in zip(cells, texts, strict=True)
    ]


def _text_columns(table: Table) -> list[bool]:
    """Return a list with True for each column that contains only text."""
    return [all(isinstance(row[column], str) for row in table.rows) for column in range(len(table.headings))]


def _format_rows(table: Table) -> list[list[str]]:
    return [[_format_cell(cell, _name_of(table, row, column)) for column, cell in enumerate(row)] for row in table.rows]


def _name_of(table: Table, row: Sequence[Cell], column: int) -> str:
    """Return the heading that applies to a cell; in a transposed table, this is the first cell of the row."""
    return str(row[0]) if table.headings[0] == "" else table.headings[column]


def _format_cell(cell: Cell, name: str) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        return format_estimate(cell)
    return format_steps(cell) if name in _STEPS else str(cell) if name in _INTEGERS else format_number(cell)


def _escape_latex(text: str) -> str:
    """Escape special characters of LaTeX. Negative numbers are set in math mode, which prints a minus sign."""
    if re.fullmatch(r"-[\d.,e+-]+", text):
        return f"${text}$".replace(",", "{,}")
    escaped = _LATEX_SPECIAL.sub(lambda letter: _LATEX[letter[0]], text)
    # At the start of a row, these would be an argument of the preceding line break.
    return f"{{}}{escaped}" if text.startswith(("[", "*")) else escaped
