"""``rl4sys config``: look at, check and complete config files."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rl4sys import config as files
from rl4sys.cli.notes import Notes
from rl4sys.cli.show import show_settings
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.experiment.config import ExperimentConfig

app = typer.Typer(help="Look at, check and complete config files.", no_args_is_help=True, rich_markup_mode="markdown")

_Source = Annotated[str, typer.Argument(metavar="CONFIG", help="A file, or the name of a shipped experiment.")]
_Changes = Annotated[list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Settings to change.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command()
def show(source: _Source, changes: _Changes = None, debug: _Debug = False) -> None:
    """Print a config with everything it extends, every default and every change spelt out.

    A part to extend, such as algorithms/ppo, is printed as it is.

    - `rl4sys config show ppo_cartpole algorithm.lr=1e-4` shows what would be trained with.
    """
    settings = files.override(files.load(source), changes or [])
    whole = {"algorithm", "environment"} <= settings.keys()
    show_settings(Console(), _read(source, changes).to_settings() if whole else settings)


@app.command()
def check(source: _Source, changes: _Changes = None, debug: _Debug = False) -> None:
    """Say whether a config can be trained; exit code 2 and every mistake if not. Builds all parts, runs none.

    - `rl4sys config check my.yaml` checks yours, with its plugins.
    """
    from rl4sys.trainer import build_actor, build_local_learner

    config = _read(source, changes)
    actor = build_actor(config)
    build_local_learner(config, actor, Notes(Console(stderr=True)))
    actor.close()
    typer.echo(f"{source}: ok")


class Kind(StrEnum):
    """What a file describes."""

    experiment = "experiment"
    client = "client"
    server = "server"
    sweep = "sweep"
    study = "study"


@app.command()
def schema(
    source: Annotated[
        str | None, typer.Argument(metavar="[CONFIG]", help="Include the components of this config's plugins.")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="Which files: those of experiments, of clients, …")] = Kind.experiment,
    debug: _Debug = False,
) -> None:
    """Print the JSON Schema of config files, for editors that complete and check them.

    - `rl4sys config schema > rl4sys.schema.json` is the schema of experiments.

    - `# yaml-language-server: $schema=rl4sys.schema.json` as first line of a YAML file has an editor use it.
    """
    if source is not None:
        _read(source, None)
    typer.echo(json.dumps(_schema(kind), indent=2))


def _schema(kind: Kind) -> dict[str, Any]:
    from rl4sys.experiment.schema import client_schema, experiment_schema, plain_schema

    if kind is Kind.experiment:
        return experiment_schema()
    if kind is Kind.client:
        return client_schema()
    if kind is Kind.server:
        from rl4sys.server.config import ServerConfig

        return plain_schema(ServerConfig)
    from rl4sys.lab.sweep import SweepConfig
    from rl4sys.lab.tune import TuneConfig

    found = plain_schema(SweepConfig if kind is Kind.sweep else TuneConfig)
    # A list is short for a block with choices.
    found["$defs"]["Range"] = {"anyOf": [{"type": "array", "minItems": 1}, found["$defs"]["Range"]]}
    return found


@app.command()
def migrate(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment's or a client's file, YAML or JSON.")],
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result here.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the result over the file.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print what differs instead of the result.")] = False,
    debug: _Debug = False,
) -> None:
    """Rewrite a file of an earlier version, or in the words of another library, in the present form.

    Says what it changed, keeps comments, and prints the result unless told where to write it. A result that would not
    be a right config is refused with its mistakes.

    - `rl4sys config migrate old.yaml --diff` shows what would change.

    - `rl4sys config migrate old.yaml --in-place` changes the file.
    """
    from rl4sys.cli.migrate import migrated, write_result

    if output is not None and in_place:
        raise ConfigError("--output and --in-place do not go together; choose one")
    write_result(migrated(source), source if in_place else output, diff=diff)


@app.command("list")
def list_configs() -> None:
    """List what ships with the package: experiments to train, and parts to extend.

    - `rl4sys config list`, then `rl4sys config show sac_pendulum` for one of them.
    """
    for group in ("experiments", "sweeps", "studies", "algorithms", "environments", "networks"):
        typer.echo(f"{group}:")
        for name in files.shipped_names(group):
            typer.echo(f"  {name}")


def _read(source: str, changes: list[str] | None) -> ExperimentConfig:
    from rl4sys.experiment.config import parse_experiment

    return parse_experiment(files.override(files.load(source), changes or []), files.find(source).parent)
