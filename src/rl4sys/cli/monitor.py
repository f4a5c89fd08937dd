"""``rl4sys monitor``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from rl4sys.experiment.glance import Glance

_RECENT_SECONDS = 3600.0
_MOST_ENDED = 10
_HINT = Text("\nCtrl-C ends the view, not the training", style="dim")


def monitor(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Runs to watch, or a folder of runs, such as that of a sweep."),
    ] = None,
    root: Annotated[Path, typer.Option(help="Where run directories are.")] = Path("experiments"),
    once: Annotated[bool, typer.Option("--once", help="Print what is now, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is now as a JSON list, and end.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every run, not only those that train or ended within the hour.")
    ] = False,
    refresh: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two looks.")] = 2.0,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Watch experiments as they train: progress, speed, returns, memory, alerts. Ctrl-C ends it, not them.

    Only files are read, so that training is not disturbed, in whatever process it runs.

    - `rl4sys monitor` shows all runs that train, and those that ended within the hour.

    - `rl4sys monitor ppo_cartpole_…` shows one in detail, with its curves.

    - `rl4sys monitor --once` prints it once; so it does where there is no terminal.
    """
    watching = Watching(runs or [], root, everything=everything)
    console = Console()
    if as_json:
        typer.echo(json.dumps([_as_json(glance) for glance in watching.look()]))
    elif once or not console.is_terminal:
        console.print(watching.view(console))
    else:
        _watch(console, lambda: Group(watching.view(console), _HINT), refresh)


def _watch(console: Console, view: Callable[[], RenderableType], refresh: float) -> None:
    try:
        with Live(view(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(refresh)
                live.update(view(), refresh=True)
    except KeyboardInterrupt:
        return


class Watching:
    """The runs that are watched; those below a folder change as runs begin and end."""

    def __init__(self, runs: list[str], root: Path, *, everything: bool) -> None:
        from rl4sys.experiment.store import find_run, usual_roots

        folders = [Path(text) for text in runs if _is_folder_of_runs(Path(text))]
        self._chosen = [find_run(text, root) for text in runs if Path(text) not in folders]
        self._folders = folders if runs else usual_roots(root)
        self._everything = everything
        self._watched: dict[Path, Any] = {}

    def look(self) -> list[Glance]:
        from rl4sys.experiment.glance import Watched

        paths = [*self._chosen, *(path for folder in self._folders for path in self._below(folder))]
        self._watched = {path: self._watched.get(path) or Watched(path) for path in paths}
        return [watched.look() for watched in self._watched.values()]

    def view(self, console: Console) -> RenderableType:
        from rl4sys.cli.monitor_view import show_many, show_none, show_one

        glances = self.look()
        if not glances:
            return show_none(self._folders)
        if len(glances) == 1 and self._chosen:
            return show_one(glances[0], console.width, console.height)
        return show_many(glances, console.width)

    def _below(self, folder: Path) -> list[Path]:
        """Those that say they train, and then those that ended, the newest first."""
        from rl4sys.experiment.glance import last_word
        from rl4sys.experiment.record import RUNNING

        words = [(path, *last_word(path)) for path in _runs_below(folder)]
        words.sort(key=lambda word: word[2], reverse=True)
        training = [path for path, status, _ in words if status == RUNNING]
        ended = [(path, at) for path, status, at in words if status != RUNNING]
        if self._everything:
            return [*training, *(path for path, _ in ended)]
        recent = [path for path, at in ended if time.time() - at < _RECENT_SECONDS] or [path for path, _ in ended]
        return [*training, *recent[:_MOST_ENDED]]


def _is_folder_of_runs(path: Path) -> bool:
    from rl4sys.experiment.record import is_run

    return not is_run(path) and bool(_runs_below(path))


def _runs_below(folder: Path) -> list[Path]:
    from rl4sys.experiment.store import run_directories

    # What is damaged is for `rl4sys list` to tell.
    return list(run_directories(folder, lambda _: None)) if folder.is_dir() else []


def _as_json(glance: Glance) -> dict[str, Any]:
    """Everything but the curves, which metrics.jsonl holds."""
    return {
        "run": str(glance.path),
        "name": glance.name,
        "algorithm": glance.algorithm,
        "environment": glance.environment,
        "seed": glance.seed,
        "state": glance.state,
        "steps": glance.steps,
        "total_steps": glance.total_steps,
        "version": glance.version,
        "steps_per_second": glance.steps_per_second,
        "seconds_left": glance.seconds_left,
        "recent_return": glance.recent_return,
        "evaluation": glance.evaluation,
        "best": glance.best,
        "memory_bytes": glance.memory_bytes,
        "silent_seconds": glance.silent_seconds,
        "metrics": dict(glance.row),
        "problem": glance.problem,
        "alerts": [dict(alert) for alert in glance.alerts],
    }
