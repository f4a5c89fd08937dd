"""Typer application with all ``rl4sys`` commands."""

from __future__ import annotations

from typing import Annotated

import typer

from rl4sys.cli.commands import (
    analyze,
    check_env,
    cleanup,
    compare,
    config,
    evaluate,
    export,
    monitor,
    simulate,
    status,
    store,
    sweep,
    tag,
    train,
    tune,
    verify,
)
from rl4sys.cli.commands import list as list_runs
from rl4sys.cli.commands import show as show_run
from rl4sys.server.command import serve
from rl4sys.version import __version__

app = typer.Typer(
    name="rl4sys",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rl4sys {__version__}")
        raise typer.Exit


@app.callback()
def rl4sys(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Train, evaluate and inspect policies, and serve them to running systems."""


app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("simulate")(simulate.simulate)
app.command("list")(list_runs.list_runs)
app.command("show")(show_run.show)
app.command("tag")(tag.tag)
app.command("compare")(compare.compare)
app.command("verify")(verify.verify)
app.command("analyze")(analyze.analyze)
app.command("export")(export.export)
app.command("cleanup")(cleanup.cleanup)
app.command("sweep")(sweep.sweep)
app.command("tune")(tune.tune)
app.command("check-env")(check_env.check_env)
app.command("monitor")(monitor.monitor)
app.command("serve")(serve)
app.command("status")(status.status)
app.add_typer(config.app, name="config")
app.add_typer(store.app, name="store")
