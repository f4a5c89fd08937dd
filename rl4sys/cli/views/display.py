"""Terminal output of ``rl4sys train``: progress bar and summaries."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from rl4sys.cli.views.console import ConsoleNotes, print_line
from rl4sys.runs.run import Run
from rl4sys.training.progress import Progress


class Display(ConsoleNotes):
    """Progress bar with speed and returns. If the output is not a terminal, prints one line per evaluation instead."""

    def __init__(self, console: Console, total: int, *, enabled: bool) -> None:
        super().__init__(console)
        self._live = enabled and console.is_terminal
        self._lines = enabled and not console.is_terminal
        self._shown_evaluation: int | None = None
        self._bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._live,
        )
        self._task = self._bar.add_task("training", total=total, figures="")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def progress(self, progress: Progress) -> None:
        self._bar.update(
            self._task, completed=min(progress.steps, progress.total_timesteps), figures=_figures(progress)
        )
        if self._lines and progress.evaluated_at is not None and progress.evaluated_at != self._shown_evaluation:
            self._shown_evaluation = progress.evaluated_at
            self._console.print(f"{progress.steps:>10,} steps  {_figures(progress)}", soft_wrap=True, highlight=False)


def show_run(console: Console, run: Run) -> None:
    """Print the path of the run directory."""
    print_line(console, f"run directory: {run.path}")


def show_summary(console: Console, run: Run, progress: Progress) -> None:
    """Print the results of a run, and the commands to resume, evaluate and plot the run."""
    finished = progress.finished
    table = Table(
        title="training finished" if finished else "training stopped", show_header=False, title_justify="left"
    )
    if progress.evaluation is not None:
        evaluation = progress.evaluation
        table.add_row("evaluation return", f"{evaluation.mean_return:.1f} ± {evaluation.std_return:.1f}")
        table.add_row("", f"over {len(evaluation.episodes)} episodes at step {progress.evaluated_at:,}")
    table.add_row("steps", f"{progress.steps:,} ({progress.steps_per_second:,.0f} per second)")
    table.add_row("run directory", escape(str(run.path)))
    console.print(table)
    if not finished:
        print_line(console, f"resume:    {_command('rl4sys')} train --resume {run.path}")
    print_line(console, f"evaluate:  {_command('rl4sys')} evaluate {run.path}")
    print_line(console, f"curves:    {_command('tensorboard')} --logdir {run.logs}")
    offline = sorted((run.logs / "wandb").glob("offline-run-*"))
    if offline:
        print_line(console, f"W&B:       recorded offline; upload with {_command('wandb')} sync {offline[-1]}")


def show_overview(console: Console, results: Mapping[int, tuple[Run, float | None]]) -> None:
    """Print a table of all seeds with their last evaluation returns."""
    table = Table("seed", "evaluation return", "run directory", title="all seeds", title_justify="left")
    for seed, (run, evaluation) in results.items():
        table.add_row(str(seed), "none" if evaluation is None else f"{evaluation:.1f}", escape(str(run.path)))
    console.print(table)


def _command(name: str) -> str:
    """Return ``name`` if this command is on the PATH, else the path of the command beside this program or Python."""
    if shutil.which(name):
        return name
    places = [Path(program).with_name(name) for program in (sys.argv[0], sys.executable)]
    return str(next((place for place in places if place.exists()), places[0]))


def _figures(progress: Progress) -> str:
    parts = [f"{progress.steps_per_second:,.0f} steps/s", f"version {progress.version}"]
    if progress.recent_return is not None:
        parts.append(f"return {progress.recent_return:.1f}")
    if progress.evaluation is not None:
        parts.append(f"evaluation {progress.evaluation.mean_return:.1f}")
    return "  ".join(parts)
