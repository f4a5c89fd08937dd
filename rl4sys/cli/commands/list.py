"""Command ``rl4sys list``: list and filter runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug
from rl4sys.cli.run_summaries import read_runs, run_to_json

if TYPE_CHECKING:
    from rl4sys.runs.query import Filter
    from rl4sys.runs.summary import RunSummary

_HEADINGS = ("id", "name", "algorithm", "environment", "seed", "status", "steps", "reward", "best_reward", "started")
_NARROW = ("id", "name", "seed", "status", "steps", "reward", "started")
_WIDE = 110
_PIPE_WIDTH = 200
_SHRINKABLE = ("name", "environment", "tags")
"""Columns that are truncated on a narrow terminal."""
_DEBUG = ", debug"
"""Text appended to the status of a debug run."""
_TEXT_COLUMNS = ("id", "name", "algorithm", "environment", "status", "started", "tags")


def list_runs(
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="'KEY=VALUE'",
            help="Condition on a run, such as 'algorithm=ppo', 'reward>200', 'tag=baseline', 'algorithm.lr<=1e-3' or "
            "'name=ppo*'. Repeatable; all conditions must hold.",
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help="Column, metric or setting to sort by, highest or newest first.")
    ] = "started",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of runs.")] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of runs. Repeatable.", show_default="experiments and live"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
    debug: Debug = False,
) -> None:
    """List local runs and hosted policies, newest first.

    `reward` is the mean return of the last evaluation, or of the last training episodes if there was no evaluation;
    `best_reward` is the best of these returns in the run. Debug runs (`train --debug`) have the tag `debug` and come
    last if runs are sorted by a number. Filters and `--sort` also accept metrics and settings.

    - `rl4sys list --filter algorithm=ppo --filter 'reward>200' --sort reward` lists good PPO runs, best first.

    - `rl4sys list --filter status=interrupted` lists killed runs; resume one with `rl4sys train --resume ID`.

    - `rl4sys list --sort loss/policy --reverse --limit 5` lists the five runs with the lowest policy loss.
    """
    from rl4sys.runs.query import Filter, filter_runs, sort_runs

    conditions = [Filter.parse(text) for text in filters or []]
    runs, roots = read_runs(root)
    found = sort_runs(filter_runs(runs, conditions), sort, reverse=reverse)[:limit]
    if as_json:
        typer.echo(json.dumps([run_to_json(run) for run in found], indent=1))
    elif not runs:
        typer.echo(f"no runs in {' or '.join(map(str, roots))}; start one with `rl4sys train ppo_cartpole`")
    else:
        _show(Console(), found, _extra_columns(conditions, sort))
        typer.echo(f"{len(found)} of {len(runs)} runs")


def _extra_columns(conditions: Sequence[Filter], sort: str) -> list[str]:
    """Return the keys of the filters and of ``--sort`` that are not standard columns."""
    asked = dict.fromkeys([*(condition.key for condition in conditions), sort])
    return [key for key in asked if key not in (*_HEADINGS, "tag")]


def _show(console: Console, runs: Sequence[RunSummary], more: Sequence[str]) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not console.is_terminal:
        console = Console(width=max(console.width, _PIPE_WIDTH))
    wide = console.width >= _WIDE
    tagged = ["tags"] if wide and any(run.tags for run in runs) else []
    headings = [*(_HEADINGS if wide else _NARROW), *more, *tagged]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for heading in headings:
        cells = [_cell(run, heading) for run in runs]
        table.add_column(
            escape(heading),
            justify="left" if heading in _TEXT_COLUMNS else "right",
            no_wrap=True,
            min_width=None if heading in _SHRINKABLE else max(map(len, [heading, *cells])),
        )
    for run in runs:
        table.add_row(*(_styled(_cell(run, heading), heading) for heading in headings))
    console.print(table)


def _styled(cell: str, key: str) -> str:
    from rich.markup import escape

    color = STATUS_COLORS.get(cell.removesuffix(_DEBUG), "default")
    return f"[{color}]{escape(cell)}[/]" if key == "status" else escape(cell)


def _cell(run: RunSummary, key: str) -> str:
    from rl4sys.analysis.formatting import format_number
    from rl4sys.runs.query import value_of

    value = " ".join(run.tags) if key == "tags" else value_of(run, key)
    if key in ("started", "finished"):
        return str(value or "")[:16].replace("T", " ")
    if key == "status" and run.is_debug:
        return f"{run.status}{_DEBUG}"
    if key == "steps":
        return f"{value:,}"
    return str(value) if isinstance(value, str) or key == "seed" else format_number(value)


STATUS_COLORS = {"running": "cyan", "completed": "green", "failed": "red", "interrupted": "red", "stopped": "yellow"}
