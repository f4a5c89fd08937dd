"""``rl4sys check-env``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rl4sys import config as files
from rl4sys.config import Settings

if TYPE_CHECKING:
    from rl4sys.environments.check import Finding
    from rl4sys.environments.config import EnvironmentConfig

_FOUND_ERRORS = 2
_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan"}


def check_env(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_FILE", help="The name of an environment, or a config with its block.", show_default=False
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of the block `environment`, such as wrapper=atari.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many random steps to take, twice.")] = 500,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Say in words what is wrong with an environment; exit code 2 if a policy could not learn in it.

    - `rl4sys check-env CartPole-v1` checks one by its name.

    - `rl4sys check-env Pong wrapper=atari` checks one of another family.

    - `rl4sys check-env my.yaml` checks yours, with the plugins and the settings of its config.
    """
    from rl4sys.environments.check import check_environment
    from rl4sys.environments.gym import make_environment

    config = environment_block(source, changes or [])
    found = check_environment(lambda: make_environment(config), steps=steps, remake=config.remake, after_end=True)
    _show(Console(), config.name, found)
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(_FOUND_ERRORS)


def environment_block(source: str, changes: list[str]) -> EnvironmentConfig:
    """The block that a name or a config stands for, with what the user changes of it."""
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.registry import load_plugins

    settings: Settings = {"name": source}
    if source.endswith((".yaml", ".yml", ".json")) or source in files.shipped_names("experiments"):
        loaded = files.load(source)
        load_plugins(loaded.get("plugins") or [], files.find(source).parent)
        settings = loaded.get("environment") or {}
    return files.parse(EnvironmentConfig, files.override(settings, changes), "environment")


def _show(console: Console, name: str, found: list[Finding]) -> None:
    for finding in found:
        colour = _COLOURS[finding.severity]
        console.print(f"[{colour}]{finding.severity}[/]: {escape(finding.text)}", soft_wrap=True)
    if not found:
        console.print(f"{escape(name)}: nothing wrong was found", soft_wrap=True)
