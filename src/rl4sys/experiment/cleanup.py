"""Making room: what is large goes from runs that nobody needs, what tells about them stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rl4sys.errors import RunError
from rl4sys.experiment.files import replace_file
from rl4sys.experiment.lock import hold, is_held
from rl4sys.experiment.outcome import REWARDS
from rl4sys.experiment.record import METRICS, RUNNING, STATUS, RunRecord
from rl4sys.experiment.store import register

LARGE = ("checkpoints", "logs", "videos")
"""What goes. Config, provenance, status, tags and metrics stay."""

_MOST_ROWS = 1000
"""Rows of metrics that stay of a run, beside those with its best and its final values: enough for a curve."""

_LIVE = "configs/live.json"
_PLAN, _RANKING = "plan.json", "ranking.json"
"""In the folder of a sweep or study, beside its trials: what it is to do, and what came of it."""


@dataclass(frozen=True)
class Rules:
    """Which runs stay whole."""

    keep_best: int
    """So many of each environment, by their best reward."""
    keep_recent: timedelta
    """All that something happened to within this time."""


@dataclass(frozen=True)
class Plan:
    """What cleaning up would do: runs to strip with the bytes that frees, and why each of the others stays."""

    strip: Mapping[Path, int]
    keep: Mapping[Path, str]

    @property
    def bytes(self) -> int:
        return sum(self.strip.values())


def plan_cleanup(runs: Sequence[RunRecord], rules: Rules, now: datetime) -> Plan:
    """Looks, and changes nothing."""
    best, needed = _best_of_each_environment(runs, rules.keep_best), _needed(runs)
    strip: dict[Path, int] = {}
    keep: dict[Path, str] = {}
    for run in runs:
        reason = _reason_to_keep(run, rules, now) or needed.get(run.path, "") or best.get(run.path, "")
        freed = 0 if reason else _freed(run.path)
        if freed:
            strip[run.path] = freed
        else:
            keep[run.path] = reason or "has nothing large"
    return Plan(strip, keep)


def strip_run(path: Path, now: datetime) -> None:
    """Take from a run what is large; refused while a process trains it."""
    try:
        with hold(path):
            if not _is_trial(path):
                # A series may rank its trials by the mean of all rows.
                _thin_metrics(path / METRICS)
            status = json.loads((path / STATUS).read_bytes()) if (path / STATUS).is_file() else {}
            stripped = status | {"cleaned": now.isoformat(timespec="seconds")}
            replace_file(path / STATUS, json.dumps(stripped, indent=1).encode())
            for name in LARGE:
                _empty(path / name)
    except OSError as problem:
        raise RunError(f"cannot clean up {path}: {problem}") from problem
    register(path)


def size_on_disk(path: Path) -> int:
    """Bytes that all in a folder takes; what is linked several times counts once."""
    found: dict[tuple[int, int], int] = {}
    for file in path.rglob("*"):
        status = file.lstat()
        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _reason_to_keep(run: RunRecord, rules: Rules, now: datetime) -> str:
    if run.status == RUNNING:
        return "running"
    if (run.path / _LIVE).is_file():
        return "a policy of a server"
    if now - datetime.fromisoformat(run.updated) < rules.keep_recent:
        return f"younger than {rules.keep_recent.days} days"
    return ""


def _best_of_each_environment(runs: Sequence[RunRecord], count: int) -> dict[Path, str]:
    """Rewards of different environments say nothing about each other."""
    ranked = sorted((run for run in runs if run.best_reward is not None), key=lambda run: run.best_reward or 0.0)
    best: dict[Path, str] = {}
    for environment in {run.environment for run in ranked}:
        same = [run for run in ranked if run.environment == environment]
        best |= {run.path: f"among the best in {environment}" for run in same[len(same) - min(count, len(same)) :]}
    return best


def _needed(runs: Sequence[RunRecord]) -> dict[Path, str]:
    """Trials that their series may go on with, and runs that the config of another names, such as for its data."""
    places = {run.path.resolve(): run.path for run in runs}
    needed = {run.path: f"a trial of {run.path.parent.name}, which is not done" for run in runs if _awaited(run)}
    for run in runs:
        named = [places[folder] for folder in _folders_named(run.settings) if folder in places]
        needed |= {path: f"needed by {run.path.name}" for path in named if path != run.path}
    return needed


def _awaited(run: RunRecord) -> bool:
    """A series that is stopped ranks what it has, and takes up again whatever did not complete."""
    series = run.path.parent
    if not _is_trial(run.path):
        return False
    return run.status != "completed" or not (series / _RANKING).is_file() or is_held(series)


def _is_trial(path: Path) -> bool:
    return (path.parent / _PLAN).is_file()


def _folders_named(settings: Any) -> Iterator[Path]:
    """Every path among the settings, with the folders above it."""
    for text in _strings(settings):
        if "/" in text:
            path = Path(text).resolve()
            yield from (path, *path.parents)


def _strings(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _strings(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from _strings(value)


def _thin_metrics(path: Path) -> None:
    """Keep so many rows, evenly, with all that hold a final or a best value."""
    if not path.is_file():
        return
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    if len(lines) <= _MOST_ROWS:
        return
    telling = _telling_rows([json.loads(line) for line in lines])
    stay = sorted({*range(0, len(lines), -(-len(lines) // _MOST_ROWS)), *telling})
    replace_file(path, b"".join(lines[number] for number in stay))


def _telling_rows(rows: Sequence[Mapping[str, Any]]) -> set[int]:
    last = {name: number for number, row in enumerate(rows) for name in row}
    best = {
        name: max(having, key=lambda number: rows[number][name])
        for name in REWARDS
        if (having := [number for number, row in enumerate(rows) if row.get(name, float("nan")) == row.get(name)])
    }
    return {*last.values(), *best.values()}


def _freed(path: Path) -> int:
    return sum(size_on_disk(path / name) for name in LARGE)


def _empty(folder: Path) -> None:
    for path in _content(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _content(folder: Path) -> Iterable[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ()
