"""``rl4sys list``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rl4sys.cli.notes import Notes

if TYPE_CHECKING:
    from rl4sys.experiment.query import Filter
    from rl4sys.experiment.record import RunRecord

_HEADINGS = ("id", "name", "algorithm", "environment", "seed", "status", "steps", "reward", "best_reward", "started")
_NARROW = ("id", "name", "seed", "status", "steps", "reward", "started")
_WIDE = 110
_WIDTH_OF_FILES = 200
_YIELDING = ("name", "environment", "tags")
"""Cut short where there is no room for all."""
_WORDS = ("id", "name", "algorithm", "environment", "status", "started", "tags")


def list_runs(
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="'KEY=VALUE'",
            help="Only runs that match, such as 'algorithm=ppo', 'reward>200', 'tag=baseline', 'algorithm.lr<=1e-3' or "
            "'name=ppo*'. Given several times, all must.",
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help="A fact, a metric or a setting: highest, or newest, first.")
    ] = "started",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort the other way.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Show so many at most.")] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of runs; may be given several times.", show_default="experiments, and live"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with all that is known of each.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """List runs, local and live, newest first.

    `reward` is the last evaluation's mean return, or that of the last training episodes where none was made;
    `best_reward` the best of them. Any metric of a run's last rows and any of its settings can be named as well.

    - `rl4sys list --filter algorithm=ppo --filter 'reward>200' --sort reward` lists good runs of PPO, the best first.

    - `rl4sys list --filter status=interrupted` lists those that died; `train --resume ID` goes on with one.

    - `rl4sys list --sort loss/policy --reverse --limit 5` lists the five with the lowest loss.
    """
    from rl4sys.experiment.query import Filter, choose, ordered

    conditions = [Filter.parse(text) for text in filters or []]
    runs, roots = read_runs(root)
    found = ordered(choose(runs, conditions), sort, reverse=reverse)[:limit]
    if as_json:
        typer.echo(json.dumps([as_object(run) for run in found], indent=1))
    elif not runs:
        typer.echo(f"no runs in {' or '.join(map(str, roots))}; `rl4sys train ppo_cartpole` makes one")
    else:
        _show(Console(), found, _keys(conditions, sort))
        typer.echo(f"{len(found)} of {len(runs)} runs")


def read_runs(root: list[Path] | None) -> tuple[list[RunRecord], list[Path]]:
    """All runs in these folders, or in the usual ones, and which folders those are; what is wrong there is noted."""
    from rl4sys.experiment.store import LOCAL, Store, usual_roots

    roots = list(dict.fromkeys(root)) if root else usual_roots(LOCAL)
    notes, runs = Notes(Console(stderr=True)), []
    for place in roots:
        store = Store(place)
        runs += store.runs()
        for note in store.notes:
            notes.note(note)
    return runs, roots


def as_object(run: RunRecord) -> dict[str, Any]:
    """For a script: numbers that are none are null."""
    facts = {name: getattr(run, name) for name in ("id", "name", "algorithm", "environment", "seed", "status", "steps")}
    return {
        **facts,
        "tags": list(run.tags),
        "reward": _finite(run.reward),
        "best_reward": _finite(run.best_reward),
        "started": run.started,
        "finished": run.finished,
        "git_hash": run.git_hash,
        "config_hash": run.config_hash,
        "final": {name: _finite(value) for name, value in run.outcome.final.items()},
        "best": {name: _finite(value) for name, value in run.outcome.best.items()},
        "directory": str(run.path),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None


def _keys(conditions: Sequence[Filter], sort: str) -> list[str]:
    """What was asked about and is not shown anyway."""
    asked = dict.fromkeys([*(condition.key for condition in conditions), sort])
    return [key for key in asked if key not in (*_HEADINGS, "tag")]


def _show(console: Console, runs: Sequence[RunRecord], more: Sequence[str]) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not console.is_terminal:
        console = Console(width=max(console.width, _WIDTH_OF_FILES))
    wide = console.width >= _WIDE
    tagged = ["tags"] if wide and any(run.tags for run in runs) else []
    headings = [*(_HEADINGS if wide else _NARROW), *more, *tagged]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for heading in headings:
        cells = [_cell(run, heading) for run in runs]
        table.add_column(
            escape(heading),
            justify="left" if heading in _WORDS else "right",
            no_wrap=True,
            min_width=None if heading in _YIELDING else max(map(len, [heading, *cells])),
        )
    for run in runs:
        table.add_row(*(_styled(_cell(run, heading), heading) for heading in headings))
    console.print(table)


def _styled(cell: str, key: str) -> str:
    from rich.markup import escape

    return f"[{STATUS_COLOURS.get(cell, 'default')}]{escape(cell)}[/]" if key == "status" else escape(cell)


def _cell(run: RunRecord, key: str) -> str:
    from rl4sys.analysis.wording import figure
    from rl4sys.experiment.query import value_of

    value = " ".join(run.tags) if key == "tags" else value_of(run, key)
    if key in ("started", "finished"):
        return str(value or "")[:16].replace("T", " ")
    if key == "steps":
        return f"{value:,}"
    return str(value) if isinstance(value, str) or key == "seed" else figure(value)


STATUS_COLOURS = {"running": "cyan", "completed": "green", "failed": "red", "interrupted": "red", "stopped": "yellow"}
