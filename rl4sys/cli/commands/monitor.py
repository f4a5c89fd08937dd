"""Command ``rl4sys monitor``: show the progress of running and ended runs."""

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

from rl4sys.cli.arguments import Debug

if TYPE_CHECKING:
    from rl4sys.runs.monitor import RunProgress

_RECENT_SECONDS = 3600.0
_MOST_ENDED = 10
_HINT = Text("\nCtrl-C closes this view; training continues", style="dim")


def monitor(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs to watch, or a folder of runs, such as a sweep."),
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the current state as a JSON array and exit.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all runs, not only active runs and those that ended in the last hour.")
    ] = False,
    refresh: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between updates.")] = 2.0,
    debug: Debug = False,
) -> None:
    """Watch runs while they train: progress, speed, returns, memory and alerts.

    Reads files only, so training is not affected. Ctrl-C closes the view; training continues.

    - `rl4sys monitor` shows active runs and runs that ended in the last hour.

    - `rl4sys monitor ppo_cartpole_…` shows one run in detail, with learning curves.

    - `rl4sys monitor --once` prints the state once; this is the default without a terminal.
    """
    selection = MonitoredRuns(runs or [], root, everything=everything)
    console = Console()
    if as_json:
        typer.echo(json.dumps([_as_json(progress) for progress in selection.read()]))
    elif once or not console.is_terminal:
        console.print(selection.view(console))
    else:
        _watch(console, lambda: Group(selection.view(console), _HINT), refresh)


def _watch(console: Console, view: Callable[[], RenderableType], refresh: float) -> None:
    try:
        with Live(view(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(refresh)
                live.update(view(), refresh=True)
    except KeyboardInterrupt:
        return


class MonitoredRuns:
    """Runs shown by ``rl4sys monitor``. Folders are searched again at every update."""

    def __init__(self, runs: list[str], root: Path, *, everything: bool) -> None:
        from rl4sys.runs.query import find_run
        from rl4sys.runs.store import usual_roots

        folders = [Path(text) for text in runs if _is_folder_of_runs(Path(text))]
        self._chosen = [find_run(text, root) for text in runs if Path(text) not in folders]
        self._folders = folders if runs else usual_roots(root)
        self._everything = everything
        self._monitors: dict[Path, Any] = {}

    def read(self) -> list[RunProgress]:
        from rl4sys.runs.monitor import RunMonitor

        paths = [*self._chosen, *(path for folder in self._folders for path in self._select(folder))]
        self._monitors = {path: self._monitors.get(path) or RunMonitor(path) for path in paths}
        return [monitor.read() for monitor in self._monitors.values()]

    def view(self, console: Console) -> RenderableType:
        from rl4sys.cli.views.monitor import show_many, show_none, show_one

        runs = self.read()
        if not runs:
            return show_none(self._folders)
        if len(runs) == 1 and self._chosen:
            return show_one(runs[0], console.width, console.height)
        return show_many(runs, console.width)

    def _select(self, folder: Path) -> list[Path]:
        """Return the runs of a folder that are shown: active runs, then ended runs, each newest first."""
        from rl4sys.runs.directory import RUNNING
        from rl4sys.runs.monitor import last_activity

        found = [(path, *last_activity(path)) for path in _runs_below(folder)]
        found.sort(key=lambda entry: entry[2], reverse=True)
        training = [path for path, status, _ in found if status == RUNNING]
        ended = [(path, at) for path, status, at in found if status != RUNNING]
        if self._everything:
            return [*training, *(path for path, _ in ended)]
        recent = [path for path, at in ended if time.time() - at < _RECENT_SECONDS] or [path for path, _ in ended]
        return [*training, *recent[:_MOST_ENDED]]


def _is_folder_of_runs(path: Path) -> bool:
    from rl4sys.runs.directory import is_run

    return not is_run(path) and bool(_runs_below(path))


def _runs_below(folder: Path) -> list[Path]:
    from rl4sys.runs.directory import run_directories

    # Damaged runs are skipped here; `rl4sys list` reports them.
    return list(run_directories(folder)) if folder.is_dir() else []


def _as_json(progress: RunProgress) -> dict[str, Any]:
    """Return the progress of a run as a JSON object, without the curves, which are in metrics.jsonl."""
    return {
        "run": str(progress.path),
        "name": progress.name,
        "algorithm": progress.algorithm,
        "environment": progress.environment,
        "seed": progress.seed,
        "state": progress.state,
        "steps": progress.steps,
        "total_steps": progress.total_steps,
        "version": progress.version,
        "steps_per_second": progress.steps_per_second,
        "seconds_left": progress.seconds_left,
        "recent_return": progress.recent_return,
        "evaluation": progress.evaluation,
        "best": progress.best,
        "memory_bytes": progress.memory_bytes,
        "cpu_share": progress.cpu_share,
        "silent_seconds": progress.silent_seconds,
        "metrics": dict(progress.row),
        "problem": progress.problem,
        "alerts": [dict(alert) for alert in progress.alerts],
    }
