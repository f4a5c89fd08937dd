"""Output of notes, tables and settings on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segments
from rich.table import Table

from rl4sys.config import Settings, to_yaml

if TYPE_CHECKING:
    from rl4sys.training.progress import Progress


_MAX_TABLE_WIDTH = 10_000


class ConsoleNotes:
    """Training observer that prints notes and ignores progress."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, message: str) -> None:
        self._console.print(f"[yellow]note[/]: {escape(message)}", soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """Do nothing: this observer prints only notes."""


def print_line(console: Console, text: str) -> None:
    """Print a line without wrapping, highlighting or markup, so that users can copy it."""
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table without truncating values. On a narrow terminal, its lines are longer than the terminal is wide."""
    unlimited = console.options.update(max_width=_MAX_TABLE_WIDTH)
    for column in table.columns:
        sizes = [Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)]
        column.min_width = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
    needed = Measurement.get(console, unlimited, table).minimum
    lines = console.render(table, console.options.update(max_width=max(needed, console.width)))
    console.print(Segments(lines), end="", soft_wrap=True)


def show_table(
    console: Console, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1
) -> None:
    """Print a table. The first ``text_columns`` columns hold text and may wrap; the other columns hold numbers."""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.show_header = any(headings)
    for index, heading in enumerate(headings):
        if index < text_columns:
            table.add_column(escape(heading), overflow="fold")
        else:
            table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    print_table(console, table)
    console.print()


def show_settings(console: Console, settings: Settings) -> None:
    """Print settings as YAML: highlighted on a terminal, plain in a file or pipe."""
    from rich.syntax import Syntax

    text = to_yaml(settings)
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        console.file.write(text)
