"""Runs that belong together, what to call them, and in what settings they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rl4sys.analysis.history import History
from rl4sys.config import Settings, did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.experiment.record import counts

_ABSENT = "—"
_SHORT = {"algorithm": "algorithm.name", "environment": "environment.name", "seed": "experiment.seed"}
_LABEL_SETTINGS = 3


@dataclass(frozen=True)
class Group:
    """Runs that are looked at as one."""

    label: str
    runs: tuple[History, ...]

    @cached_property
    def strata(self) -> list[list[History]]:
        """The runs by config: those of one differ by their seed alone."""
        found: dict[str, list[History]] = {}
        for run in self.runs:
            found.setdefault(run.config_hash, []).append(run)
        return list(found.values())


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same everywhere, and what it is in each group."""

    setting: str
    values: tuple[str, ...]


def flatten(settings: Mapping[str, Any], at: str = "") -> Settings:
    """Settings by dotted name; a schedule is one setting, as the number is that may stand in its place."""
    flat: Settings = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and not _is_schedule(value):
            flat |= flatten(value, f"{at}{key}.")
        else:
            flat[f"{at}{key}"] = value
    return flat


def group_runs(chosen: Sequence[tuple[str, Sequence[History]]], by: str = "config") -> list[Group]:
    """Groups in the order in which their first run was named.

    ``by`` is config (all but the seed), name, run, argument (what was named together), or settings with commas between.
    """
    parts: dict[Any, list[History]] = {}
    labels: dict[Any, str] = {}
    runs = [run for _, several in chosen for run in several]
    settings = _settings_to_group_by(by, runs)
    for argument, several in chosen:
        for run in several:
            key, label = _place(run, argument, by, settings)
            if run not in parts.setdefault(key, []):
                parts[key].append(run)
            labels.setdefault(key, label)
    return _labelled([(labels[key], tuple(several)) for key, several in parts.items()])


def differences(groups: Sequence[Group]) -> list[Difference]:
    """The settings that are not the same in all runs, of those that change what is learnt."""
    flat = [[flatten(run.settings) for run in group.runs] for group in groups]
    keys = dict.fromkeys(key for several in flat for settings in several for key in settings)
    found = []
    for key in keys:
        if not counts(key):
            continue
        values = [list(dict.fromkeys(in_words(one.get(key, _ABSENT)) for one in several)) for several in flat]
        if len({value for several in values for value in several}) > 1:
            found.append(Difference(key, tuple("; ".join(several) for several in values)))
    return found


def in_words(value: Any) -> str:
    """A setting as it would be written in a file, a schedule by where it starts and ends."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and _is_schedule(value):
        return _schedule_in_words(value)
    return json.dumps(value, default=str)


def in_short(value: Any) -> str:
    """The same for a table, numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else in_words(value)


def _is_schedule(value: Mapping[str, Any]) -> bool:
    return {"start", "end"} <= set(value)


def _schedule_in_words(schedule: Mapping[str, Any]) -> str:
    usual = {"fraction": 1.0, "steps": None}
    more = [
        f"{key} {value}" for key, value in schedule.items() if key not in ("start", "end") and value != usual.get(key)
    ]
    return f"{schedule['start']} → {schedule['end']}" + (f" ({', '.join(more)})" if more else "")


def _settings_to_group_by(by: str, runs: Sequence[History]) -> list[str]:
    if by in ("config", "name", "run", "argument"):
        return []
    known = sorted({key for run in runs for key in flatten(run.settings)})
    names = [_SHORT.get(word.strip(), word.strip()) for word in by.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--by {name} is not a setting of these runs{did_you_mean(name, known)} Give config, name, run, "
                "argument, or a setting such as algorithm.lr; several with commas between"
            )
    return names


def _place(run: History, argument: str, by: str, settings: Sequence[str]) -> tuple[Any, str]:
    """Which group a run is in, and what that would be called if it were the only one of its name."""
    if settings:
        values = [in_words(flatten(run.settings).get(name, _ABSENT)) for name in settings]
        named = (_value_with_name(name, value) for name, value in zip(settings, values, strict=True))
        return tuple(values), ", ".join(named)
    if by == "run":
        return run.path.resolve(), run.path.name
    if by == "argument":
        return argument, argument
    return (run.name, run.name) if by == "name" else ((run.name, run.config_hash), run.name)


def _value_with_name(setting: str, value: str) -> str:
    short = setting.rpartition(".")[2]
    return value if short == "name" else f"{short}={value}"


def _labelled(parts: Sequence[tuple[str, tuple[History, ...]]]) -> list[Group]:
    """Groups of one name are told apart by the settings in which they differ, then by number."""
    groups: list[Group] = []
    for label, runs in parts:
        alike = [Group(label, several) for other, several in parts if other == label]
        full = label if len(alike) == 1 else f"{label} {_distinction(alike, runs)}".rstrip()
        taken = sum(1 for group in groups if group.label == full or group.label.startswith(f"{full} ("))
        groups.append(Group(full if not taken else f"{full} ({taken + 1})", runs))
    return groups


def _distinction(alike: Sequence[Group], runs: tuple[History, ...]) -> str:
    place = next(place for place, group in enumerate(alike) if group.runs == runs)
    told = differences(alike)[:_LABEL_SETTINGS]
    return ", ".join(f"{d.setting.rpartition('.')[2]}={d.values[place]}" for d in told)
