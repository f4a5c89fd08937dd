"""Command ``rl4sys tag``: add, remove or show the tags of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl4sys.cli.arguments import Debug, RunArgument


def tag(
    run: RunArgument,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG", help="Tags to add.", show_default=False)] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Tag to remove. Repeatable.")] = None,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Add, remove or show the tags of a run.

    Find tagged runs with `rl4sys list --filter tag=baseline`. The setting `experiment.tags: [baseline]` tags all runs
    of a config.

    - `rl4sys tag 3f9c` shows the tags of a run.

    - `rl4sys tag 3f9c baseline paper` adds two tags.

    - `rl4sys tag 3f9c --remove paper` removes a tag.
    """
    from rl4sys.runs.query import find_run
    from rl4sys.runs.store import change_tags
    from rl4sys.runs.summary import read_summary

    path = find_run(run, root)
    changed = bool(tags or remove)
    now = change_tags(path, tags or [], remove or []) if changed else read_summary(path).tags
    typer.echo(f"{path.name}: {' '.join(now) or 'no tags'}")
