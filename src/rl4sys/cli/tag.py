"""``rl4sys tag``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def tag(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run: its directory, its id, or the beginning of either.", show_default=False
        ),
    ],
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="TAG", help="Labels to give it.", show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="A label to take off; may be given several times.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Label a run, to find it with `rl4sys list --filter tag=…`; without labels, show those it has.

    - `rl4sys tag 3f9c baseline paper` adds two.

    - `rl4sys tag 3f9c --remove paper` takes one off.

    A config can give labels to all its runs: `experiment.tags: [baseline]`.
    """
    from rl4sys.experiment.record import read_record
    from rl4sys.experiment.store import find_run
    from rl4sys.experiment.tags import change_tags

    path = find_run(run, root)
    changed = bool(tags or remove)
    now = change_tags(path, tags or [], remove or []) if changed else read_record(path).tags
    typer.echo(f"{path.name}: {' '.join(now) or 'no tags'}")
