"""All commands together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from rl4sys.cli import (
    analyze,
    check_env,
    cleanup,
    compare,
    config,
    evaluate,
    export,
    list_runs,
    monitor,
    serve,
    show_run,
    simulate,
    status,
    store,
    sweep,
    tag,
    train,
    tune,
    verify,
)

app = typer.Typer(
    name="rl4sys",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rl4sys {version('rl4sys')}")
        raise typer.Exit


@app.callback()
def rl4sys(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Train policies, look at them, and put them inside running systems."""


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
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.add_typer(config.app, name="config")
app.add_typer(store.app, name="store")
