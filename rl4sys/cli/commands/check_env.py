"""Command ``rl4sys check-env``: check an environment for errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rl4sys.cli.arguments import Debug
from rl4sys.training.policy_source import read_environment

if TYPE_CHECKING:
    from rl4sys.environments.check import Finding

_FOUND_ERRORS = 2
_COLORS = {"error": "red", "warning": "yellow", "hint": "cyan"}


def check_env(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_FILE", help="Environment name, or config with an `environment` block.", show_default=False
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings to change in the `environment` block, such as family=atari.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1, help="Number of random steps. They are repeated to check that the environment is deterministic."
        ),
    ] = 500,
    debug: Debug = False,
) -> None:
    """Check an environment for errors. Exit code 2 means that it cannot be used for training.

    - `rl4sys check-env CartPole-v1` checks a Gymnasium environment.

    - `rl4sys check-env Pong family=atari` checks an Atari game.

    - `rl4sys check-env my.yaml` checks the environment of a config, with its plugins.
    """
    from rl4sys.environments.check import check_environment
    from rl4sys.environments.factory import make_environment

    config = read_environment(source, changes or [])
    found = check_environment(lambda: make_environment(config), steps=steps, remake=config.remake, after_end=True)
    _show(Console(), config.name, found)
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(_FOUND_ERRORS)


def _show(console: Console, name: str, found: list[Finding]) -> None:
    for finding in found:
        color = _COLORS[finding.severity]
        console.print(f"[{color}]{finding.severity}[/]: {escape(finding.text)}", soft_wrap=True)
    if not found:
        console.print(f"{escape(name)}: no problems found", soft_wrap=True)
