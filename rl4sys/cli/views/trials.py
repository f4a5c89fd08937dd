"""Terminal output of ``rl4sys sweep`` and ``rl4sys tune``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from rl4sys.cli.views.console import print_line
from rl4sys.sweeps.ranking import RankedPoint
from rl4sys.sweeps.series import Series
from rl4sys.sweeps.sweep import describe
from rl4sys.sweeps.trials import OUTPUT, Trial, TrialState, TrialStatus

_COLORS: dict[TrialState, str] = {
    "waiting": "dim",
    "running": "cyan",
    "completed": "green",
    "stopped": "yellow",
    "pruned": "magenta",
    "failed": "red",
}
_ORDER: tuple[TrialState, ...] = ("running", "failed", "completed", "pruned", "stopped", "waiting")
_OTHER_LINES = 8
"""Number of terminal lines that do not show trials: table borders, header, summary and prompt."""
_MOST_RANKED = 10


class Board:
    """Live table of all trials. If the output is not a terminal, prints one line for each change of a trial's state."""

    def __init__(self, console: Console, series: Series, statuses: Iterable[TrialStatus]) -> None:
        self._console, self._series = console, series
        self._statuses = {status.trial.number: status for status in statuses}
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: TrialStatus) -> None:
        before = self._statuses.get(status.trial.number)
        self._statuses[status.trial.number] = status
        if before is None or before.state != status.state:
            self._report(status)
        elif status.message != before.message:
            print_line(self._console, f"{_name(status.trial)}: {status.message}")

    def tick(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    @property
    def statuses(self) -> list[TrialStatus]:
        return list(self._statuses.values())

    def _report(self, status: TrialStatus) -> None:
        """Print the new state of a trial. With a live table, print only failures."""
        if status.state == "failed":
            print_line(self._console, _failure(self._series, status))
        elif self._live is None:
            figure = "" if status.value is None else f", {self._series.config.metric} {status.value:.1f}"
            print_line(self._console, f"{_name(status.trial)}: {status.state}{figure}")

    def _table(self) -> Group:
        point = Column("point", no_wrap=True, overflow="ellipsis")
        table = Table("trial", point, "seed", "status", "progress", self._series.config.metric)
        chosen = self._select(max(3, self._console.height - _OTHER_LINES))
        for status in chosen:
            table.add_row(*_cells(status))
        left = len(self._statuses) - len(chosen)
        more = f"and {left} more; " if left else ""
        return Group(table, Text(f"{more}{_counts(self._statuses.values())}    Ctrl-C: save and stop", style="dim"))

    def _select(self, room: int) -> list[TrialStatus]:
        """Select up to ``room`` trials, sorted by number. Running and failed trials have priority, then new trials."""
        by_priority = sorted(self._statuses.values(), key=lambda s: (_ORDER.index(s.state), _recency(s)))
        return sorted(by_priority[:room], key=lambda s: s.trial.number)


def _recency(status: TrialStatus) -> int:
    """Return a sort key for trials in one state: newest first, but waiting trials in order of number."""
    number = status.trial.number
    return number if status.state == "waiting" else -number


def _cells(status: TrialStatus) -> list[str]:
    trial, color = status.trial, _COLORS[status.state]
    return [
        str(trial.number),
        f"{trial.point}  [dim]{escape(describe(trial.changes))}[/]",
        str(trial.seed),
        f"[{color}]{status.state}[/]",
        _progress(status),
        "" if status.value is None else f"{status.value:.1f}",
    ]


def _progress(status: TrialStatus) -> str:
    if not status.total_timesteps:
        return ""
    return f"{min(1.0, status.steps / status.total_timesteps):.0%} of {status.total_timesteps:,}"


def _counts(statuses: Iterable[TrialStatus]) -> str:
    counts: dict[TrialState, int] = dict.fromkeys(_ORDER, 0)
    for status in statuses:
        counts[status.state] += 1
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _name(trial: Trial) -> str:
    return f"trial {trial.number} (point {trial.point}: {describe(trial.changes)}, seed {trial.seed})"


def _failure(series: Series, status: TrialStatus) -> str:
    output = series.run_path(status.trial) / OUTPUT
    return f"{_name(status.trial)} failed: {status.message}; output: {output}"


def show_trials(console: Console, trials: Sequence[Trial], jobs: int) -> None:
    """Print the table of planned trials for ``--dry-run``."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.changes))
    table = Table("trial", "point", "seed", *keys)
    for trial in trials:
        values = describe_values(trial, keys)
        table.add_row(str(trial.number), str(trial.point), str(trial.seed), *map(escape, values))
    console.print(table)
    points = len({trial.point for trial in trials})
    print_line(console, f"{len(trials)} trials of {points} points, {jobs} at a time; nothing was run")


def describe_values(trial: Trial, keys: Sequence[str]) -> list[str]:
    return [describe({key: trial.changes[key]}).partition("=")[2] if key in trial.changes else "" for key in keys]


def show_ranking(console: Console, ranking: Sequence[RankedPoint], metric: str) -> None:
    """Print the best points with mean and standard deviation of the metric over seeds."""
    known = [ranked for ranked in ranking if ranked.mean is not None]
    table = Table("rank", "point", metric, "seeds", "settings", title="best points", title_justify="left")
    for place, ranked in enumerate(known[:_MOST_RANKED], 1):
        spread = "" if ranked.deviation is None else f" ± {ranked.deviation:.1f}"
        figure = f"{ranked.mean:.1f}{spread}"
        table.add_row(str(place), str(ranked.point), figure, str(len(ranked.values)), escape(describe(ranked.changes)))
    if known:
        console.print(table)


def show_failures(console: Console, series: Series, statuses: Iterable[TrialStatus]) -> int:
    """Print each failed trial. Return the number of failed trials."""
    failed = [status for status in statuses if status.state == "failed"]
    for status in failed:
        print_line(console, _failure(series, status))
    return len(failed)


def limited_jobs(console: Console, wanted: int, cores: int) -> int:
    if wanted <= cores:
        return wanted
    print_line(
        console, f"parallel_jobs is {wanted}, but only {cores} cores are available; running {cores} trials at a time"
    )
    return cores


def find_series(text: str, root: Path) -> Path:
    """Return the directory of a sweep or study given by path or by name under ``root``."""
    path = Path(text)
    return path if path.is_dir() or not (root / text).is_dir() else root / text
