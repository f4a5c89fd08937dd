"""Migration of config files for ``rl4sys config migrate``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from rl4sys.cli.yaml_text import rewrite_yaml
from rl4sys.client.config import ClientConfig, load_client_config
from rl4sys.client.migration import migrate as migrate_client
from rl4sys.config import VERSION, Settings, inherited, merged, read
from rl4sys.config.migration import Change, read_version
from rl4sys.errors import ConfigError
from rl4sys.runs.config import BLOCK_FIELDS, ExperimentConfig, parse_experiment
from rl4sys.runs.files import replace_file
from rl4sys.runs.migration import migrate_experiment

_CLIENT_KEYS = (set(ClientConfig.model_fields) | {"algorithm_name", "network_architecture", "communication"}) - set(
    ExperimentConfig.model_fields
)
"""Keys that occur only in client configs."""

_SERIES_KEY = "base_config"
"""Key that only sweep and study configs have. These configs have no version and are not migrated."""


@dataclass(frozen=True)
class Result:
    """Config file before and after migration."""

    path: Path
    before: str
    after: str
    changes: list[Change]
    comments_kept: bool = True


def migrate_file(path: Path) -> Result:
    """Migrate the content of a config file. Writes nothing; raises ConfigError if the result is not a valid config."""
    settings = read(path)
    before = path.read_text(encoding="utf-8")
    if _SERIES_KEY in settings:
        return Result(path, before, before, [])
    if _CLIENT_KEYS & settings.keys() - {"seed"}:
        new, changes = _migrate_client(settings)
    else:
        new, changes = _migrate_experiment(settings, path)
    if not changes:
        return Result(path, before, before, [])
    if path.suffix == ".json":
        return Result(path, before, json.dumps(_version_first(new), indent=2) + "\n", changes)
    after, kept = rewrite_yaml(before, changes, new)
    return Result(path, before, after, changes, kept)


def write_result(result: Result, target: Path | None, *, diff: bool) -> None:
    """Print the changes on stderr, and write the migrated config to ``target``, or to stdout without a target.

    With ``diff``, print a diff on stdout instead of the config.
    """
    for change in result.changes:
        typer.echo(str(change), err=True)
    if not result.changes:
        typer.echo(f"{result.path}: nothing to change; the config is already in the current format", err=True)
    if not result.comments_kept:
        typer.echo("the migrated config has no comments, because they could not be kept; copy them by hand", err=True)
    if target is not None and (result.changes or target != result.path):
        _write(target, result.after)
    if diff:
        typer.echo(_difference(result, target or result.path), nl=False)
    elif target is None:
        typer.echo(result.after, nl=False)


def _migrate_experiment(settings: Settings, path: Path) -> tuple[Settings, list[Change]]:
    base = inherited(settings, path)
    draft = migrate_experiment(settings, BLOCK_FIELDS, base)
    whole = merged(base, draft.settings)
    if {"algorithm", "environment"} <= whole.keys():
        _check(lambda: parse_experiment(whole, beside=path.parent), draft.changes)
    return draft.settings, draft.changes


def _migrate_client(settings: Settings) -> tuple[Settings, list[Change]]:
    read_version(settings, VERSION)
    new = {"version": VERSION, **migrate_client(settings, native=frozenset(ClientConfig.model_fields))}
    changes = _find_changes(settings, new)
    _check(lambda: load_client_config(new), changes)
    return new, changes


def _check(parse: Callable[[], object], changes: list[Change]) -> None:
    try:
        parse()
    except ConfigError as problem:
        done = "".join(f"\n  {change}" for change in changes)
        raise ConfigError(
            f"the migrated config has errors, and nothing was written:\n{problem}\nChanges made:{done}"
        ) from problem


def _find_changes(old: Settings, new: Settings) -> list[Change]:
    """Return the changes between old and new settings. A removed and an added key with equal values are a rename."""
    before, after = _leaves(old), _leaves(new)
    added = {key: value for key, value in after.items() if before.get(key) != value}
    changes: list[Change] = []
    for key, value in before.items():
        if after.get(key) == value:
            continue
        new_key = next((name for name, other in added.items() if _same(value, other)), None)
        if new_key is None:
            changes.append(Change(key, None, reason="there is no corresponding setting"))
        else:
            changes.append(Change(key, new_key, added.pop(new_key)))
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
