"""What ``rl4sys config migrate`` does with a file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from rl4sys import config as files
from rl4sys.cli.yaml_text import rewritten
from rl4sys.client.config import ClientConfig, load_client_config
from rl4sys.client.migration import migrate as migrate_client
from rl4sys.config import VERSION, Settings
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import BLOCK_FIELDS, ExperimentConfig, parse_experiment
from rl4sys.experiment.files import replace_file
from rl4sys.experiment.migration import migrate_experiment
from rl4sys.migration import Change, read_version

_OF_CLIENTS = (set(ClientConfig.model_fields) | {"algorithm_name", "network_architecture", "communication"}) - set(
    ExperimentConfig.model_fields
)
"""Settings that only a client's file has."""

_OF_SERIES = "base_config"
"""What every sweep and study has; their files have had one form so far, and say no version."""


@dataclass(frozen=True)
class Result:
    """A file before and after."""

    path: Path
    before: str
    after: str
    changes: list[Change]
    comments_kept: bool = True


def migrated(path: Path) -> Result:
    """The file in the present form; a `ConfigError` if that would not be a right config."""
    settings = files.read(path)
    before = path.read_text(encoding="utf-8")
    if _OF_SERIES in settings:
        return Result(path, before, before, [])
    if _OF_CLIENTS & settings.keys() - {"seed"}:
        new, changes = _migrate_client(settings)
    else:
        new, changes = _migrate_experiment(settings, path)
    if not changes:
        return Result(path, before, before, [])
    if path.suffix == ".json":
        return Result(path, before, json.dumps(_version_first(new), indent=2) + "\n", changes)
    after, kept = rewritten(before, changes, new)
    return Result(path, before, after, changes, kept)


def write_result(result: Result, target: Path | None, *, diff: bool) -> None:
    """The list of changes to the terminal, and the result to the target, or to the standard output."""
    for change in result.changes:
        typer.echo(str(change), err=True)
    if not result.changes:
        typer.echo(f"{result.path}: nothing to change; it is of the present version, {VERSION}", err=True)
    if not result.comments_kept:
        typer.echo("comments could not be kept", err=True)
    if target is not None and (result.changes or target != result.path):
        _write(target, result.after)
    if diff:
        typer.echo(_difference(result, target or result.path), nl=False)
    elif target is None:
        typer.echo(result.after, nl=False)


def _migrate_experiment(settings: Settings, path: Path) -> tuple[Settings, list[Change]]:
    inherited = files.inherited(settings, path)
    draft = migrate_experiment(settings, BLOCK_FIELDS, inherited)
    whole = files.merged(inherited, draft.settings)
    if {"algorithm", "environment"} <= whole.keys():
        _check(lambda: parse_experiment(whole, beside=path.parent), draft.changes)
    return draft.settings, draft.changes


def _migrate_client(settings: Settings) -> tuple[Settings, list[Change]]:
    read_version(settings, VERSION)
    new = {"version": VERSION, **migrate_client(settings, native=frozenset(ClientConfig.model_fields))}
    changes = _compared(settings, new)
    _check(lambda: load_client_config(new), changes)
    return new, changes


def _check(read: Any, changes: list[Change]) -> None:
    try:
        read()
    except ConfigError as problem:
        done = "".join(f"\n  {change}" for change in changes)
        raise ConfigError(
            f"what is left is not right, and nothing was written:\n{problem}\nChanged so far:{done}"
        ) from problem


def _compared(old: Settings, new: Settings) -> list[Change]:
    """Which setting became which, judged by their values."""
    before, after = _leaves(old), _leaves(new)
    added = {key: value for key, value in after.items() if before.get(key) != value}
    changes: list[Change] = []
    for key, value in before.items():
        if after.get(key) == value:
            continue
        became = next((name for name, other in added.items() if _same(value, other)), None)
        if became is None:
            changes.append(Change(key, None, reason="nothing here corresponds to it"))
        else:
            changes.append(Change(key, became, added.pop(became)))
    return [*changes, *(Change(None, key, value) for key, value in added.items())]


def _same(old: Any, new: Any) -> bool:
    return bool(type(old) is type(new) and (old.lower() == new.lower() if isinstance(old, str) else old == new))


def _leaves(settings: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{at}{key}.")
        else:
            found[f"{at}{key}"] = value
    return found


def _version_first(settings: Settings) -> Settings:
    return {"version": settings["version"], **settings}


def _difference(result: Result, target: Path) -> str:
    lines = difflib.unified_diff(
        result.before.splitlines(keepends=True),
        result.after.splitlines(keepends=True),
        str(result.path),
        str(target),
    )
    return "".join(lines)


def _write(target: Path, text: str) -> None:
    try:
        replace_file(target, text.encode())
    except OSError as problem:
        raise ConfigError(f"cannot write {target}: {problem.strerror}") from problem
