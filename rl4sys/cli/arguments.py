"""Command-line arguments shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from rl4sys.errors import ConfigError

RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Run directory, run ID, or a prefix of either.", show_default=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")]


def split_names(metrics: str) -> list[str]:
    """Split the comma-separated value of ``--metrics`` into names. Raises ConfigError if there are none."""
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ConfigError("--metrics is empty; expected metric names, such as reward,loss")
    return names


def take_source(config: str | None, arguments: list[str]) -> str | None:
    """Return the config given by ``--config``, or else remove and return the first argument.

    Return None if no config is given; an assignment such as ``algorithm.lr=1e-3`` is not a config.
    """
    if config is not None or not arguments or "=" in arguments[0]:
        return config
    return arguments.pop(0)
