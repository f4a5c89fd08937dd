"""``rl4sys config``: look at, check and complete config files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys import config as files
from rl4sys.cli.show import show_settings

if TYPE_CHECKING:
    from rl4sys.experiment.config import ExperimentConfig

app = typer.Typer(help="Look at, check and complete config files.", no_args_is_help=True, rich_markup_mode="markdown")

_Source = Annotated[str, typer.Argument(metavar="CONFIG", help="A file, or the name of a shipped experiment.")]
_Changes = Annotated[list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Settings to change.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command()
def show(source: _Source, changes: _Changes = None, debug: _Debug = False) -> None:
    """Print a config with everything it extends, every default and every change spelt out."""
    show_settings(Console(), _read(source, changes).to_settings())


@app.command()
def check(source: _Source, changes: _Changes = None, debug: _Debug = False) -> None:
    """Say whether a config is right; exit code 2 and every mistake if not."""
    _read(source, changes)
    typer.echo(f"{source}: ok")


@app.command()
def schema() -> None:
    """Print the JSON Schema of config files, for editors that complete and check them."""
    from rl4sys.experiment.schema import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=2))


@app.command("list")
def list_configs() -> None:
    """List what ships with the package: experiments to train, and parts to extend."""
    for group in ("experiments", "algorithms", "environments", "networks"):
        typer.echo(f"{group}:")
        for name in files.shipped_names(group):
            typer.echo(f"  {name}")


def _read(source: str, changes: list[str] | None) -> ExperimentConfig:
    from rl4sys.experiment.config import parse_experiment

    return parse_experiment(files.override(files.load(source), changes or []), files.find(source).parent)
