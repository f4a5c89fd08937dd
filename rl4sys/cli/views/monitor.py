"""Terminal views of ``rl4sys monitor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rl4sys.cli.views.text_plots import format_compact, plot, sparkline
from rl4sys.machine import format_bytes
from rl4sys.metric_names import RETURN_METRICS
from rl4sys.runs.monitor import RunProgress

_COLORS = {
    "running": "green",
    "completed": "blue",
    "stopped": "yellow",
    "failed": "bold red",
    "interrupted": "bold red",
}
_WIDE, _ROOMY = 110, 140
_TRIAL = "trial_"
_SHOWN_ALERTS = 5
_LEAST_PLOT, _MOST_PLOT = 5, 12


class _Column(NamedTuple):
    heading: str
    least_width: int
    """Minimum terminal width, in characters, to show the column."""
    cell: Callable[[RunProgress, int], RenderableType]
    """Function that returns the cell for a run and a terminal width."""
    figures: bool = True


_COLUMNS = (
    _Column("run", 0, lambda run, width: Text(_label(run, width)), figures=False),
    _Column("state", 0, lambda run, _: Text(run.state, style=_COLORS.get(run.state, "")), figures=False),
    _Column("progress", 0, lambda run, width: _progress(run, 4 if width < _ROOMY else 12), figures=False),
    _Column("left", 0, lambda run, _: _duration(run.seconds_left)),
    _Column("steps/s", 90, lambda run, _: format_compact(run.steps_per_second)),
    _Column("return", 0, lambda run, _: format_compact(run.recent_return)),
    _Column("evaluation", 112, lambda run, _: format_compact(run.evaluation)),
    _Column("best", 100, lambda run, _: format_compact(run.best)),
    _Column("curve", 0, lambda run, width: _curve(run, 8 if width < _ROOMY else 20), figures=False),
    _Column("algorithm", 180, lambda run, _: Text(run.algorithm), figures=False),
    _Column("environment", 180, lambda run, _: Text(run.environment), figures=False),
    _Column("seed", 180, lambda run, _: "" if run.seed is None else str(run.seed)),
    _Column("cpu", 120, lambda run, _: _cpu(run)),
    _Column("memory", 120, lambda run, _: format_bytes(run.memory_bytes) if run.memory_bytes else ""),
)


def show_none(folders: Sequence[Path]) -> RenderableType:
    places = " and ".join(str(folder) for folder in folders)
    return Text(
        f"no runs in {places}; start one with `rl4sys train ppo_cartpole`, or choose another folder with --root"
    )


def show_many(runs: Sequence[RunProgress], width: int) -> RenderableType:
    """Return a table with one row per run, followed by the problems of these runs."""
    columns = [column for column in _COLUMNS if column.least_width <= width]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        if column.heading == "run":
            table.add_column(column.heading, overflow="ellipsis", no_wrap=True, ratio=1, min_width=12)
        else:
            table.add_column(column.heading, justify="right" if column.figures else "left", no_wrap=True)
    for run in runs:
        table.add_row(*(column.cell(run, width) for column in columns))
    table.width = width
    training = sum(run.state == "running" for run in runs)
    head = Text(f"{training} running, {len(runs) - training} ended", style="bold")
    problems = [_problem_line(run) for run in runs if run.problem]
    return Group(head, Text(), table, *([Text(), *problems] if problems else []))


def show_one(run: RunProgress, width: int, height: int) -> RenderableType:
    """Return the details of one run: state, plots, metrics and alerts."""
    head = (Text(run.path.name, style="bold"), Text(), _facts(run), Text())
    figures = (*_plots(run, width, height), Text(), _metrics(run, width))
    return Group(*head, *figures, *_alerts(run))


def _facts(run: RunProgress) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    pairs = [
        ("state", Text(run.state, style=_COLORS.get(run.state, ""))),
        ("algorithm", Text(f"{run.algorithm} in {run.environment}, seed {run.seed}")),
        ("progress", _progress(run, 24)),
        ("steps", Text(_steps(run))),
        ("speed", Text(_speed(run))),
        ("return", Text(_returns(run))),
        ("cpu", Text(_cpu(run))),
        ("memory", Text(format_bytes(run.memory_bytes) if run.memory_bytes else "")),
        ("problem", Text(run.problem, style="bold red")),
        ("last update", Text(f"{_duration(run.silent_seconds)} ago" if run.silent_seconds is not None else "")),
    ]
    for name, value in pairs:
        if value:
            table.add_row(Text(name, style="dim"), value)
    return table


def _plots(run: RunProgress, width: int, height: int) -> list[RenderableType]:
    """Plot the training and evaluation returns, side by side on a wide terminal."""
    curves = [(name, run.curves.get(name, [])) for name in reversed(RETURN_METRICS)]
    drawn = [(name, curve) for name, curve in curves if len(curve) > 1]
    if not drawn:
        return [Text("no curve yet", style="dim")]
    abreast = len(drawn) if width >= _WIDE else 1
    tall = max(_LEAST_PLOT, min(_MOST_PLOT, (height - 26) * abreast // len(drawn)))
    each = width // abreast - 2
    plots = [Text("\n".join([name, *plot(points, each, tall)])) for name, points in drawn]
    if abreast == 1:
        return list(plots)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(*plots)
    return [grid]


def _metrics(run: RunProgress, width: int) -> Table:
    """Table with the newest value and a sparkline of each metric."""
    abreast = 2 if width >= _WIDE else 1
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for _ in range(abreast):
        table.add_column("metric")
        table.add_column("last", justify="right")
        table.add_column("history")
    cells = [
        (Text(name), format_compact(value), sparkline([y for _, y in run.curves.get(name, [])], 16))
        for name, value in sorted(run.row.items())
    ]
    half = -(-len(cells) // abreast)
    for place in range(half):
        table.add_row(*(cell for i in range(place, len(cells), half) for cell in cells[i]))
    return table


def _alerts(run: RunProgress) -> list[RenderableType]:
    shown = run.alerts[-_SHOWN_ALERTS:]
    return [Text(), Text("alerts", style="bold"), *map(_alert_line, shown)] if shown else []


def _alert_line(alert: Mapping[str, Any]) -> Text:
    cleared = alert.get("status") == "cleared"
    rule = alert.get("rule")
    message = f"{rule} has cleared" if cleared else f"{rule}: {alert.get('message')}"
    step = alert.get("step")
    at = f"step {step:,}" if isinstance(step, int) else ""
    return Text(f"{str(alert.get('time', ''))[:19]}  {at}  {message}", style="dim" if cleared else "red")


def _label(run: RunProgress, width: int) -> str:
    """Return the name of a run. A trial has the name of its sweep, truncated to fit the column, as a prefix."""
    own, series = run.path.name, run.path.parent.name
    if not own.startswith(_TRIAL):
        return own
    room = max(8, (28 if width < _ROOMY else 40) - len(own) - 1)
    return f"{series if len(series) <= room else series[: room - 1] + '…'}/{own}"


def _problem_line(run: RunProgress) -> Text:
    color = "red" if run.state in ("running", "failed", "interrupted") else "yellow"
    return Text(f"{run.path.name}: {run.problem}", style=color)


def _progress(run: RunProgress, width: int) -> Text:
    share = run.share
    if share is None:
        return Text(f"{run.steps:,} steps")
    full = round(share * width)
    bar = Text("━" * full, style=_COLORS.get(run.state, ""))
    bar.append("━" * (width - full), style="dim")
    bar.append(f" {share:.0%}")
    return bar


def _steps(run: RunProgress) -> str:
    total = f" of {run.total_steps:,}" if run.total_steps else ""
    version = f", version {run.version}" if run.version is not None else ""
    return f"{run.steps:,}{total}{version}"


def _speed(run: RunProgress) -> str:
    rate = f"{format_compact(run.steps_per_second)} steps/s" if run.steps_per_second is not None else ""
    left = f", {_duration(run.seconds_left)} left" if run.seconds_left is not None else ""
    return rate + left


def _returns(run: RunProgress) -> str:
    returns = {"recent": run.recent_return, "evaluation": run.evaluation, "best": run.best}
    return ", ".join(f"{name} {format_compact(value)}" for name, value in returns.items() if value is not None)


def _cpu(run: RunProgress) -> str:
    """Format the CPU use of the process; 100% is one core."""
    return "" if run.cpu_share is None else f"{run.cpu_share:.0%}"


def _curve(run: RunProgress, width: int) -> str:
    return sparkline([value for _, value in run.reward_curve()], width)


def _duration(seconds: float | None) -> str:
    """Format a duration with at most two units, such as 2h 05m. Return an empty string for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
