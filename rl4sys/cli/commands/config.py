"""Command ``rl4sys config``: show, check and migrate config files."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug
from rl4sys.cli.views.console import ConsoleNotes, show_settings
from rl4sys.config import Settings, find, load, override, shipped_names
from rl4sys.errors import ConfigError
from rl4sys.runs.migration import is_variant

if TYPE_CHECKING:
    from rl4sys.runs.config import ExperimentConfig

app = typer.Typer(help="Show, check and migrate config files.", no_args_is_help=True, rich_markup_mode="markdown")

_Source = Annotated[
    str, typer.Argument(metavar="CONFIG", help="Config file, or name of a shipped experiment.", show_default=False)
]
_Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY.PATH=VALUE", help="Settings to change, such as algorithm.lr=1e-3.", show_default=False),
]


@app.command()
def show(source: _Source, changes: _Changes = None, debug: Debug = False) -> None:
    """Print the complete config, including inherited settings, defaults and changes on the command line.

    A partial config, such as algorithms/ppo, is printed without defaults.

    - `rl4sys config show ppo_cartpole algorithm.lr=1e-4` prints all settings of an experiment.
    """
    settings = _load(source, changes)
    whole = {"algorithm", "environment"} <= settings.keys()
    show_settings(Console(), _parse(source, settings).to_settings() if whole else settings)


@app.command()
def check(source: _Source, changes: _Changes = None, debug: Debug = False) -> None:
    """Check a config for errors. If it is invalid, print all errors; the exit code is then 2.

    Builds the environment and the learner, but does not train.

    - `rl4sys config check my.yaml` checks a config and its plugins.
    """
    from rl4sys.training.setup import build_actor, build_local_learner

    config = _parse(source, _load(source, changes))
    actor = build_actor(config)
    build_local_learner(config, actor, ConsoleNotes(Console(stderr=True)))
    actor.close()
    typer.echo(f"{source}: ok")


class Kind(StrEnum):
    """Kind of config file."""

    experiment = "experiment"
    client = "client"
    server = "server"
    sweep = "sweep"
    study = "study"


@app.command()
def schema(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG", help="Config whose plugins add their components to the schema.", show_default=False
        ),
    ] = None,
    kind: Annotated[Kind, typer.Option(help="Kind of config file.")] = Kind.experiment,
    debug: Debug = False,
) -> None:
    """Print the JSON Schema of config files, for completion and checks in editors.

    - `rl4sys config schema > rl4sys.schema.json` writes the schema of experiment configs.

    - `# yaml-language-server: $schema=rl4sys.schema.json` as the first line of a YAML file enables it in editors.
    """
    if source is not None:
        _parse(source, _load(source, None))
    typer.echo(json.dumps(_schema(kind), indent=2))


def _schema(kind: Kind) -> dict[str, Any]:
    from rl4sys.runs.config_schema import client_schema, experiment_schema, plain_schema

    if kind is Kind.experiment:
        return experiment_schema()
    if kind is Kind.client:
        return client_schema()
    if kind is Kind.server:
        from rl4sys.server.config import ServerConfig

        return plain_schema(ServerConfig)
    from rl4sys.sweeps.sweep import SweepConfig
    from rl4sys.sweeps.tune import TuneConfig

    found = plain_schema(SweepConfig if kind is Kind.sweep else TuneConfig)
    # A list is shorthand for a block with `choices`.
    found["$defs"]["Range"] = {"anyOf": [{"type": "array", "minItems": 1}, found["$defs"]["Range"]]}
    return found


@app.command()
def migrate(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="Experiment or client config, YAML or JSON.", show_default=False)
    ],
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; the default is stdout.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Overwrite the config file.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print a diff instead of the result.")] = False,
    debug: Debug = False,
) -> None:
    """Convert a config of an earlier version, or with the keys of another library, to the current format.

    Lists the changes on stderr and keeps comments. Nothing is written if the result is not a valid config.

    - `rl4sys config migrate old.yaml --diff` shows what would change.

    - `rl4sys config migrate old.yaml --in-place` converts the file.
    """
    from rl4sys.cli.migrate import migrate_file, write_result

    if output is not None and in_place:
        raise ConfigError("--output and --in-place cannot be combined; use one of them")
    write_result(migrate_file(source), source if in_place else output, diff=diff)


@app.command("list")
def list_configs() -> None:
    """List the configs shipped with the package: experiments, sweeps, studies and partial configs to extend.

    - `rl4sys config list` lists the names; `rl4sys config show sac_pendulum` prints one of the configs.
    """
    for group in ("experiments", "quickstart", "sweeps", "studies", "algorithms", "environments", "networks"):
        typer.echo(f"{group}:")
        for name in shipped_names(group):
            typer.echo(f"  {name}")


def _load(source: str, changes: list[str] | None) -> Settings:
    settings = load(source)
    if is_variant(settings):
        from rl4sys.runs.config import convert_variant

        settings = convert_variant(settings, ConsoleNotes(Console(stderr=True)).note)
    return override(settings, changes or [])


def _parse(source: str, settings: Settings) -> ExperimentConfig:
    from rl4sys.runs.config import parse_experiment

    return parse_experiment(settings, find(source).parent)
