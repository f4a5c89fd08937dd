"""Terminal output of runs that are trained in parallel."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rl4sys.cli.views.console import print_line
from rl4sys.sweeps.trials import TrialStatus


class ParallelDisplay:
    """Display with one progress bar per run in a terminal, otherwise one line for each change of a run's state."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[int, str] = {}
        columns = (TextColumn("seed {task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"))
        self._bars = Progress(*columns, TimeRemainingColumn(), console=console) if console.is_terminal else None
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> ParallelDisplay:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, status: TrialStatus) -> None:
        number = status.trial.number
        figures = f"{status.steps:,} steps{'' if status.value is None else f', evaluation {status.value:.1f}'}"
        if self._bars is not None:
            if number not in self._tasks:
                self._tasks[number] = self._bars.add_task(str(status.trial.seed), total=None, figures="")
            text = figures if status.state == "running" else f"{status.state}, {figures}"
            total = status.total_timesteps or None
            self._bars.update(self._tasks[number], completed=status.steps, total=total, figures=text)
        if status.state != self._states.get(number) and (self._bars is None or status.state == "failed"):
            message = f": {escape(status.message)}" if status.message else ""
            shown = "" if status.state == "running" else f", {figures}"
            print_line(self._console, f"seed {status.trial.seed}: {status.state}{shown}{message}")
        self._states[number] = status.state

    def tick(self) -> None:
        """Do nothing, because the bars refresh themselves."""
