"""All commands together."""

from __future__ import annotations

import typer

from rl4sys.cli import config, evaluate, train

app = typer.Typer(
    name="rl4sys",
    help="Train policies, look at them, and put them inside running systems.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.add_typer(config.app, name="config")
