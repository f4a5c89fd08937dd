"""Command ``rl4sys store``: maintain the run store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug
from rl4sys.cli.views.console import ConsoleNotes

app = typer.Typer(
    help="Maintain the run store, the index of a folder of runs (registry.db).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command()
def rebuild(
    root: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of runs. Repeatable.", show_default="experiments and live"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Rebuild the index from the run directories, ignoring its current content.

    Rarely needed: every command that reads the index updates it first, and a missing or damaged index is rebuilt
    automatically.

    - `rl4sys store rebuild --root elsewhere` rebuilds the index of another folder.
    """
    from rl4sys.errors import RunError
    from rl4sys.runs.store import FILE, LOCAL, RunStore, usual_roots

    for place in root or usual_roots(LOCAL):
        if not place.is_dir():
            raise RunError(f"folder '{place}' does not exist; choose a folder of runs with --root")
        store = RunStore(place)
        found = store.rebuild()
        for note in store.notes:
            ConsoleNotes(Console(stderr=True)).note(note)
        typer.echo(f"{place / FILE}: {len(found)} runs")
