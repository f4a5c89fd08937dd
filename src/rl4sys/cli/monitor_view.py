"""Runs as `rl4sys monitor` shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rl4sys.cli.text_plots import figure, plot, sparkline
from rl4sys.experiment.glance import Glance
from rl4sys.experiment.machine import in_words
from rl4sys.experiment.outcome import REWARDS

_COLOURS = {
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
    """The narrowest terminal that shows it."""
    cell: Callable[[Glance, int], RenderableType]
    """What it shows of a run in a terminal so wide."""
    figures: bool = True


_COLUMNS = (
    _Column("run", 0, lambda glance, width: Text(_label(glance, width)), figures=False),
    _Column("state", 0, lambda glance, _: Text(glance.state, style=_COLOURS.get(glance.state, "")), figures=False),
    _Column("progress", 0, lambda glance, width: _progress(glance, 4 if width < _ROOMY else 12), figures=False),
    _Column("left", 0, lambda glance, _: _duration(glance.seconds_left)),
    _Column("steps/s", 90, lambda glance, _: figure(glance.steps_per_second)),
    _Column("return", 0, lambda glance, _: figure(glance.recent_return)),
    _Column("evaluation", 112, lambda glance, _: figure(glance.evaluation)),
    _Column("best", 100, lambda glance, _: figure(glance.best)),
    _Column("curve", 0, lambda glance, width: _curve(glance, 8 if width < _ROOMY else 20), figures=False),
    _Column("algorithm", 180, lambda glance, _: Text(glance.algorithm), figures=False),
    _Column("environment", 180, lambda glance, _: Text(glance.environment), figures=False),
    _Column("seed", 180, lambda glance, _: "" if glance.seed is None else str(glance.seed)),
    _Column("memory", 130, lambda glance, _: in_words(glance.memory_bytes) if glance.memory_bytes else ""),
)


def show_none(folders: Sequence[Path]) -> RenderableType:
    places = " and ".join(str(folder) for folder in folders)
    return Text(f"no runs in {places}: start one with `rl4sys train ppo_cartpole`, or name another folder with --root")


def show_many(glances: Sequence[Glance], width: int) -> RenderableType:
    """A line for each, and below what is the matter with some."""
    columns = [column for column in _COLUMNS if column.least_width <= width]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        if column.heading == "run":
            table.add_column(column.heading, overflow="ellipsis", no_wrap=True, ratio=1, min_width=12)
        else:
            table.add_column(column.heading, justify="right" if column.figures else "left", no_wrap=True)
    for glance in glances:
        table.add_row(*(column.cell(glance, width) for column in columns))
    table.width = width
    training = sum(glance.state == "running" for glance in glances)
    head = Text(f"{training} in training, {len(glances) - training} ended", style="bold")
    troubles = [_trouble(glance) for glance in glances if glance.problem]
    return Group(head, Text(), table, *([Text(), *troubles] if troubles else []))


def show_one(glance: Glance, width: int, height: int) -> RenderableType:
    """All there is to see of a run."""
    head = (Text(glance.path.name, style="bold"), Text(), _facts(glance), Text())
    figures = (*_plots(glance, width, height), Text(), _metrics(glance, width))
    return Group(*head, *figures, *_alerts(glance))


def _facts(glance: Glance) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    pairs = [
        ("state", Text(glance.state, style=_COLOURS.get(glance.state, ""))),
        ("algorithm", Text(f"{glance.algorithm} in {glance.environment}, seed {glance.seed}")),
        ("progress", _progress(glance, 24)),
        ("steps", Text(_steps(glance))),
        ("speed", Text(_speed(glance))),
        ("return", Text(_returns(glance))),
        ("memory", Text(in_words(glance.memory_bytes) if glance.memory_bytes else "")),
        ("problem", Text(glance.problem, style="bold red")),
        ("last word", Text(f"{_duration(glance.silent_seconds)} ago" if glance.silent_seconds is not None else "")),
    ]
    for name, value in pairs:
        if value:
            table.add_row(Text(name, style="dim"), value)
    return table


def _plots(glance: Glance, width: int, height: int) -> list[RenderableType]:
    """Returns in training and in evaluation, side by side where there is room."""
    curves = [(name, glance.curves.get(name, [])) for name in reversed(REWARDS)]
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


def _metrics(glance: Glance, width: int) -> Table:
    """The newest value of each metric, with how it went."""
    abreast = 2 if width >= _WIDE else 1
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for _ in range(abreast):
        table.add_column("metric")
        table.add_column("last", justify="right")
        table.add_column("so far")
    cells = [
        (Text(name), figure(value), sparkline([y for _, y in glance.curves.get(name, [])], 16))
        for name, value in sorted(glance.row.items())
    ]
    half = -(-len(cells) // abreast)
    for place in range(half):
        table.add_row(*(cell for i in range(place, len(cells), half) for cell in cells[i]))
    return table


def _alerts(glance: Glance) -> list[RenderableType]:
    shown = glance.alerts[-_SHOWN_ALERTS:]
    return [Text(), Text("alerts", style="bold"), *map(_alert_line, shown)] if shown else []


def _alert_line(alert: Mapping[str, Any]) -> Text:
    cleared = alert.get("status") == "cleared"
    said = f"{alert.get('rule')} has cleared" if cleared else _words(alert)
    step = alert.get("step")
    at = f"step {step:,}" if isinstance(step, int) else ""
    return Text(f"{str(alert.get('time', ''))[:19]}  {at}  {said}", style="dim" if cleared else "red")


def _words(alert: Mapping[str, Any]) -> str:
    return f"{alert.get('rule')}: {alert.get('message')}"


def _label(glance: Glance, width: int) -> str:
    """The run's name; a trial goes by that of its sweep too, of which the end is cut before its own is."""
    own, series = glance.path.name, glance.path.parent.name
    if not own.startswith(_TRIAL):
        return own
    room = max(8, (28 if width < _ROOMY else 40) - len(own) - 1)
    return f"{series if len(series) <= room else series[: room - 1] + '…'}/{own}"


def _trouble(glance: Glance) -> Text:
    colour = "red" if glance.state in ("running", "failed", "interrupted") else "yellow"
    return Text(f"{glance.path.name}: {glance.problem}", style=colour)


def _progress(glance: Glance, width: int) -> Text:
    share = glance.share
    if share is None:
        return Text(f"{glance.steps:,} steps")
    full = round(share * width)
    bar = Text("━" * full, style=_COLOURS.get(glance.state, ""))
    bar.append("━" * (width - full), style="dim")
    bar.append(f" {share:.0%}")
    return bar


def _steps(glance: Glance) -> str:
    total = f" of {glance.total_steps:,}" if glance.total_steps else ""
    version = f", version {glance.version}" if glance.version is not None else ""
    return f"{glance.steps:,}{total}{version}"


def _speed(glance: Glance) -> str:
    rate = f"{figure(glance.steps_per_second)} steps/s" if glance.steps_per_second is not None else ""
    left = f", {_duration(glance.seconds_left)} left" if glance.seconds_left is not None else ""
    return rate + left


def _returns(glance: Glance) -> str:
    said = {"recent": glance.recent_return, "evaluation": glance.evaluation, "best": glance.best}
    return ", ".join(f"{name} {figure(value)}" for name, value in said.items() if value is not None)


def _curve(glance: Glance, width: int) -> str:
    return sparkline([value for _, value in glance.reward_curve()], width)


def _duration(seconds: float | None) -> str:
    """Two units at most."""
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
