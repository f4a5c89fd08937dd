"""Results for papers and spreadsheets: one table, written as LaTeX, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rl4sys.analysis.wording import figure
from rl4sys.experiment.record import RunRecord

Cell: TypeAlias = str | float | None

_FACTS = ("algorithm", "environment", "seed", "status", "steps", "reward", "best_reward")
_WHOLE = ("seed", "steps")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "—": "---",
    **{letter: f"\\{letter}" for letter in "&%$#_"},
}
_LATEX_LETTERS = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True)
class Table:
    """Columns by name; the first holds words."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def results_table(runs: Sequence[RunRecord], metrics: Sequence[str]) -> Table:
    """A row for each run: what it is, how good it was, and the final values of ``metrics``."""
    rows = [
        [run.path.name, *(getattr(run, fact) for fact in _FACTS), *(run.outcome.final.get(name) for name in metrics)]
        for run in runs
    ]
    return Table(["run", *_FACTS, *metrics], rows)


def upright(table: Table) -> Table:
    """A table of one row turned round: a line for each of its columns."""
    [row] = table.rows
    return Table(["", str(row[0])], list(zip(table.headings[1:], row[1:], strict=True)))


def rows_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Rows of metrics, each with the run it is of; what a row does not have is empty."""
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    return Table(["run", *names], [[run, *(row.get(name) for name in names)] for run, row in rows])


def written(table: Table, form: str) -> str:
    """As latex, csv, json or md."""
    writers = {"latex": _latex, "csv": _csv, "json": _json, "md": _markdown}
    return writers[form](table)


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows([["" if cell is None else cell for cell in row] for row in table.rows])
    return text.getvalue()


def _json(table: Table) -> str:
    """Numbers that are none are null."""
    objects = [dict(zip(table.headings, map(_plain, row), strict=True)) for row in table.rows]
    return json.dumps(objects, indent=1) + "\n"


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _markdown(table: Table) -> str:
    lines = [table.headings, ["---" if words else "---:" for words in _wordy(table)], *_in_words(table)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _latex(table: Table) -> str:
    rows = [[_escaped(cell) for cell in row] for row in [list(table.headings), *_in_words(table)]]
    head, *body = [" & ".join(row) + r" \\" for row in rows]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{''.join('l' if words else 'r' for words in _wordy(table))}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _wordy(table: Table) -> list[bool]:
    """Which columns hold nothing but words."""
    return [all(isinstance(row[place], str) for row in table.rows) for place in range(len(table.headings))]


def _in_words(table: Table) -> list[list[str]]:
    return [[_said(cell, _name_of(table, row, place)) for place, cell in enumerate(row)] for row in table.rows]


def _name_of(table: Table, row: Sequence[Cell], place: int) -> str:
    """What a cell is: its heading or, in a table turned round, the beginning of its line."""
    return str(row[0]) if table.headings[0] == "" else table.headings[place]


def _said(cell: Cell, name: str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if name == "steps" else str(cell) if name in _WHOLE else figure(cell)


def _escaped(text: str) -> str:
    """Nothing in it is taken for a command; a number's minus is as long as a plus."""
    if re.fullmatch(r"-[\d.,e+-]+", text):
        return f"${text}$".replace(",", "{,}")
    return _LATEX_LETTERS.sub(lambda letter: _LATEX[letter[0]], text)
