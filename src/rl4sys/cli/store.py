"""``rl4sys store``: the index of a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl4sys.cli.notes import Notes

app = typer.Typer(help="The index of a folder of runs, registry.db.", no_args_is_help=True, rich_markup_mode="markdown")


@app.command()
def rebuild(
    root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of runs; may be given several times.", show_default="experiments, and live"),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Make the index anew from the run directories, believing nothing that it says.

    Hardly ever needed: every command that reads it brings it up to date with the directories, and one that is lost or
    damaged is made anew by itself.

    - `rl4sys store rebuild --root elsewhere` does so for the runs of another folder.
    """
    from rl4sys.errors import RunError
    from rl4sys.experiment.store import FILE, LOCAL, Store, usual_roots

    for place in root or usual_roots(LOCAL):
        if not place.is_dir():
            raise RunError(f"there is no folder {place}; name one with --root")
        store = Store(place)
        found = store.rebuild()
        for note in store.notes:
            Notes(Console(stderr=True)).note(note)
        typer.echo(f"{place / FILE}: {len(found)} runs")
