"""What a series of trials looks like on the terminal, and how it ends when it is asked to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from rl4sys.lab.ranking import Ranked
from rl4sys.lab.series import Series
from rl4sys.lab.sweep import describe
from rl4sys.lab.trials import OUTPUT, Standing, Status, Trial

_COLOURS: dict[Status, str] = {
    "waiting": "dim",
    "running": "cyan",
    "completed": "green",
    "stopped": "yellow",
    "pruned": "magenta",
    "failed": "red",
}
_ORDER: tuple[Status, ...] = ("running", "failed", "completed", "pruned", "stopped", "waiting")
_OTHER_LINES = 8
"""Lines of the table that are not trials, and of the prompt below it."""
_MOST_RANKED = 10


class Board:
    """A table that follows the trials; where there is no terminal, a line for each that begins or ends."""

    def __init__(self, console: Console, series: Series, standings: Iterable[Standing]) -> None:
        self._console, self._series = console, series
        self._standings = {standing.trial.number: standing for standing in standings}
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

    def show(self, standing: Standing) -> None:
        before = self._standings.get(standing.trial.number)
        self._standings[standing.trial.number] = standing
        if before is None or before.status != standing.status:
            self._tell(standing)
        elif standing.message != before.message:
            line(self._console, f"{_name(standing.trial)}: {standing.message}")

    def tick(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    @property
    def standings(self) -> list[Standing]:
        return list(self._standings.values())

    def _tell(self, standing: Standing) -> None:
        """Only what went wrong where there is a table; everything where there is none."""
        if standing.status == "failed":
            line(self._console, _failure(self._series, standing))
        elif self._live is None:
            figure = "" if standing.value is None else f", {self._series.settings.metric} {standing.value:.1f}"
            line(self._console, f"{_name(standing.trial)}: {standing.status}{figure}")

    def _table(self) -> Group:
        point = Column("point", no_wrap=True, overflow="ellipsis")
        table = Table("trial", point, "seed", "status", "progress", self._series.settings.metric)
        chosen = self._chosen(max(3, self._console.height - _OTHER_LINES))
        for standing in chosen:
            table.add_row(*_cells(standing))
        left = len(self._standings) - len(chosen)
        more = f"and {left} more; " if left else ""
        return Group(table, Text(f"{more}{_counts(self._standings.values())}    Ctrl-C saves and stops", style="dim"))

    def _chosen(self, room: int) -> list[Standing]:
        """Those that a look is most worth, in their order: running ones, failed ones, and the newest that ended."""
        by_worth = sorted(self._standings.values(), key=lambda s: (_ORDER.index(s.status), _age(s)))
        return sorted(by_worth[:room], key=lambda s: s.trial.number)


def _age(standing: Standing) -> int:
    """Of those that ended the newest come first; of those that wait, the next."""
    number = standing.trial.number
    return number if standing.status == "waiting" else -number


def _cells(standing: Standing) -> list[str]:
    trial, colour = standing.trial, _COLOURS[standing.status]
    return [
        str(trial.number),
        f"{trial.point}  [dim]{escape(describe(trial.changes))}[/]",
        str(trial.seed),
        f"[{colour}]{standing.status}[/]",
        _progress(standing),
        "" if standing.value is None else f"{standing.value:.1f}",
    ]


def _progress(standing: Standing) -> str:
    if not standing.total_timesteps:
        return ""
    return f"{min(1.0, standing.steps / standing.total_timesteps):.0%} of {standing.total_timesteps:,}"


def _counts(standings: Iterable[Standing]) -> str:
    counts: dict[Status, int] = dict.fromkeys(_ORDER, 0)
    for standing in standings:
        counts[standing.status] += 1
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def _name(trial: Trial) -> str:
    return f"trial {trial.number} (point {trial.point}: {describe(trial.changes)}, seed {trial.seed})"


def _failure(series: Series, standing: Standing) -> str:
    output = series.run_path(standing.trial) / OUTPUT
    return f"{_name(standing.trial)} failed: {standing.message}; its output: {output}"


def show_trials(console: Console, trials: Sequence[Trial], jobs: int) -> None:
    """What would run."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.changes))
    table = Table("trial", "point", "seed", *keys)
    for trial in trials:
        values = describe_values(trial, keys)
        table.add_row(str(trial.number), str(trial.point), str(trial.seed), *map(escape, values))
    console.print(table)
    points = len({trial.point for trial in trials})
    line(console, f"{len(trials)} trials of {points} points, {jobs} at once; nothing was run")


def describe_values(trial: Trial, keys: Sequence[str]) -> list[str]:
    return [describe({key: trial.changes[key]}).partition("=")[2] if key in trial.changes else "" for key in keys]


def show_ranking(console: Console, ranking: Sequence[Ranked], metric: str) -> None:
    """The best points, with their seeds taken together."""
    known = [ranked for ranked in ranking if ranked.mean is not None]
    table = Table("rank", "point", metric, "seeds", "settings", title="best points", title_justify="left")
    for place, ranked in enumerate(known[:_MOST_RANKED], 1):
        spread = "" if ranked.deviation is None else f" ± {ranked.deviation:.1f}"
        figure = f"{ranked.mean:.1f}{spread}"
        table.add_row(str(place), str(ranked.point), figure, str(len(ranked.values)), escape(describe(ranked.changes)))
    if known:
        console.print(table)


def show_failures(console: Console, series: Series, standings: Iterable[Standing]) -> int:
    """Name each trial that failed; how many did."""
    failed = [standing for standing in standings if standing.status == "failed"]
    for standing in failed:
        line(console, _failure(series, standing))
    return len(failed)


def limited_jobs(console: Console, wanted: int, cores: int) -> int:
    if wanted <= cores:
        return wanted
    line(console, f"parallel_jobs is {wanted}, and there are {cores} cores: {cores} trials run at once")
    return cores


def find_series(text: str, root: Path) -> Path:
    """The directory a user means: by its path, or by its name under ``root``."""
    path = Path(text)
    return path if path.is_dir() or not (root / text).is_dir() else root / text


@contextmanager
def stopping_on_signals() -> Iterator[Callable[[], bool]]:
    """Yields whether to stop. The first Ctrl-C or SIGTERM has trials save and end; the next one ends all at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    asked = False

    def stop(number: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def line(console: Console, text: str) -> None:
    """A line to copy: not wrapped, coloured or read as markup."""
    console.print(text, soft_wrap=True, highlight=False, markup=False)
