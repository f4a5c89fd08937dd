"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show_table(
    console: Console, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1
) -> None:
    """The first ``words`` columns hold words, which may be folded; the others figures, which stay whole."""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.show_header = any(headings)
    for place, heading in enumerate(headings):
        if place < words:
            table.add_column(escape(heading), overflow="fold")
        else:
            table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
    console.print()
