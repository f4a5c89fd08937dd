"""Groups of runs, their labels, and the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rl4sys.analysis.history import History
from rl4sys.config import Settings, did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.runs.directory import affects_training

_ABSENT = "—"
_ALIASES = {"algorithm": "algorithm.name", "environment": "environment.name", "seed": "experiment.seed"}
_MAX_LABEL_SETTINGS = 3


@dataclass(frozen=True)
class Group:
    """Runs that are aggregated under one label."""

    label: str
    runs: tuple[History, ...]

    @cached_property
    def strata(self) -> list[list[History]]:
        """Runs of the group, grouped by config; runs in a stratum differ only in the seed."""
        found: dict[str, list[History]] = {}
        for run in self.runs:
            found.setdefault(run.config_hash, []).append(run)
        return list(found.values())


@dataclass(frozen=True)
class Difference:
    """Setting that differs between runs, with its value or values in each group."""

    setting: str
    values: tuple[str, ...]


def flatten(settings: Mapping[str, Any], at: str = "") -> Settings:
    """Flatten nested settings to dotted names. A schedule stays one setting, because it can replace a number."""
    flat: Settings = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and not _is_schedule(value):
            flat |= flatten(value, f"{at}{key}.")
        else:
            flat[f"{at}{key}"] = value
    return flat


def group_runs(chosen: Sequence[tuple[str, Sequence[History]]], by: str = "config") -> list[Group]:
    """Group runs. The order of the groups is that of their first runs.

    `by` is config (all settings except the seed), name, run, argument (runs from one command-line argument), or a
    comma-separated list of settings.
    """
    parts: dict[Any, list[History]] = {}
    labels: dict[Any, str] = {}
    runs = [run for _, selected in chosen for run in selected]
    settings = _settings_to_group_by(by, runs)
    for argument, selected in chosen:
        for run in selected:
            key, label = _group_key(run, argument, by, settings)
            if run not in parts.setdefault(key, []):
                parts[key].append(run)
            labels.setdefault(key, label)
    return _label_groups([(labels[key], tuple(members)) for key, members in parts.items()])


def differences(groups: Sequence[Group]) -> list[Difference]:
    """Return the settings that affect training and differ between runs, with their values in each group."""
    flat = [[flatten(run.settings) for run in group.runs] for group in groups]
    keys = dict.fromkeys(key for members in flat for settings in members for key in settings)
    found = []
    for key in keys:
        if not affects_training(key):
            continue
        values = [
            list(dict.fromkeys(format_setting(settings.get(key, _ABSENT)) for settings in members)) for members in flat
        ]
        if len({value for of_group in values for value in of_group}) > 1:
            found.append(Difference(key, tuple("; ".join(of_group) for of_group in values)))
    return found


def format_setting(value: Any) -> str:
    """Format the value of a setting as in a config file; a schedule as `start → end`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and _is_schedule(value):
        return _format_schedule(value)
    return json.dumps(value, default=str)


def format_setting_short(value: Any) -> str:
    """Format the value of a setting for a table, floats with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else format_setting(value)


def _is_schedule(value: Mapping[str, Any]) -> bool:
    return {"start", "end"} <= set(value)


def _format_schedule(schedule: Mapping[str, Any]) -> str:
    defaults = {"fraction": 1.0, "steps": None}
    more = [
        f"{key} {value}"
        for key, value in schedule.items()
        if key not in ("start", "end") and value != defaults.get(key)
    ]
    return f"{schedule['start']} → {schedule['end']}" + (f" ({', '.join(more)})" if more else "")


def _settings_to_group_by(by: str, runs: Sequence[History]) -> list[str]:
    if by in ("config", "name", "run", "argument"):
        return []
    known = sorted({key for run in runs for key in flatten(run.settings)})
    names = [_ALIASES.get(word.strip(), word.strip()) for word in by.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--by {name!r} is not a setting of these runs{did_you_mean(name, known)} Give config, name, run, "
                "argument, or a setting such as algorithm.lr; separate several settings with commas"
            )
    return names


def _group_key(run: History, argument: str, by: str, settings: Sequence[str]) -> tuple[Any, str]:
    """Return the key of the group of a run, and a label of the group that may not be unique."""
    if settings:
        values = [format_setting(flatten(run.settings).get(name, _ABSENT)) for name in settings]
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


def _label_groups(parts: Sequence[tuple[str, tuple[History, ...]]]) -> list[Group]:
    """Make labels unique: append the settings in which groups with the same label differ, then a number."""
    groups: list[Group] = []
    for label, runs in parts:
        alike = [Group(label, members) for other, members in parts if other == label]
        full = label if len(alike) == 1 else f"{label} {_distinction(alike, runs)}".rstrip()
        used = sum(1 for group in groups if group.label == full or group.label.startswith(f"{full} ("))
        groups.append(Group(full if not used else f"{full} ({used + 1})", runs))
    return groups


def _distinction(alike: Sequence[Group], runs: tuple[History, ...]) -> str:
    index = next(index for index, group in enumerate(alike) if group.runs == runs)
    shown = differences(alike)[:_MAX_LABEL_SETTINGS]
    return ", ".join(f"{d.setting.rpartition('.')[2]}={d.values[index]}" for d in shown)
