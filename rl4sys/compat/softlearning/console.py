"""Command ``softlearning``, which trains the variants of an example module as ``rl4sys train`` trains configs."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rl4sys.command_errors import errors_as_messages
from rl4sys.compat.softlearning.flags import add_flags, assignments, notes
from rl4sys.config import Settings, override
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rl4sys.runs.config import ExperimentConfig

_ROOT = Path("experiments")

_LOCAL = {
    "run_example_local": "train on this machine",
    "run_example_debug": "train a few steps with checks of every layer and a profile",
    "run_example_dry": "show all settings without training",
}
_REMOTE = {
    "run_example_cluster": "an existing Ray cluster",
    "launch_example_gce": "Ray and machines of Google Compute Engine",
    "launch_example_ec2": "Ray and machines of Amazon EC2",
}
_EXAMPLES = """\
examples:
  softlearning run_example_local examples.development --algorithm SAC --universe gym --domain HalfCheetah --task v3
  softlearning run_example_dry examples.development --algorithm SQL --universe dm_control --domain walker --task walk
  softlearning run_example_local examples.multi_goal --algorithm SQL
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``softlearning``. An error is printed as a message and gives exit code 2."""
    args = get_parser().parse_args(arguments)
    if args.command == "run_example_debug":
        # Read by torch at import; silences the start and stop messages of its profiler.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with errors_as_messages():
        if args.command in _REMOTE:
            raise ConfigError(
                f"softlearning {args.command} needs {_REMOTE[args.command]}, which this release does not support; "
                f"train on one machine with: softlearning run_example_local {args.example}, or several trials at a "
                "time with: rl4sys sweep"
            )
        _run(args)


def _run(args: Namespace) -> None:
    from typer import Exit

    try:
        run_example(args)
    except Exit as ended:
        sys.exit(ended.exit_code)


def get_parser() -> ArgumentParser:
    """Return the parser of all commands and options."""
    parser = ArgumentParser(
        prog="softlearning",
        description="Train the variants of an example module, such as examples.development.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    remote = {name: f"needs {needs}; not supported by this release" for name, needs in _REMOTE.items()}
    for name, text in {**_LOCAL, **remote}.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("example", metavar="EXAMPLE", help="module of the example, such as examples.development")
        add_flags(command)
    return parser


def run_example(args: Namespace) -> None:
    """Train the trials of an example on this machine, or show their settings."""
    from rich.console import Console

    from rl4sys.cli.commands.train import shrink_configs, train_each
    from rl4sys.cli.views.console import ConsoleNotes
    from rl4sys.cli.views.plan import show_plan

    console = Console()
    configs = read_trials(import_example(args.example).get_variant_spec(args), args)
    for note in (*notes(args), *_replaced_version(args, configs[0])):
        ConsoleNotes(console).note(note)
    debug, dry = args.command == "run_example_debug", args.command == "run_example_dry"
    if args.restore is not None:
        _resume(console, args, configs[0])
        return
    if debug:
        configs = shrink_configs(console, configs, assignments(args))
    if dry:
        show_plan(console, configs, _ROOT)
    else:
        train_each(console, configs, _ROOT, debug=debug)


def read_trials(variant: Settings, args: Namespace) -> list[ExperimentConfig]:
    """Return the configs of the trials: one per seed, with the command-line options applied to the variant."""
    from rl4sys.runs.config import convert_variant, parse_experiment

    settings = override(convert_variant(variant), assignments(args))
    if args.num_samples < 1:
        raise ConfigError("--num-samples is 0, but at least one trial is needed")
    first = parse_experiment(settings)
    seeds = range(first.experiment.seed, first.experiment.seed + args.num_samples)
    return [parse_experiment(override(settings, [f"experiment.seed={seed}"])) for seed in seeds]


def _replaced_version(args: Namespace, config: ExperimentConfig) -> list[str]:
    """Return a note if Gymnasium does not provide the requested version of the environment."""
    wanted, taken = f"{args.domain}-{args.task}", config.environment.name
    if args.task is None or config.environment.family != "gym" or wanted == taken:
        return []
    return [f"{wanted} is not available in this version of Gymnasium; using {taken}"]


def import_example(name: str) -> ModuleType:
    """Import an example module from the current directory or else from the package rl4sys."""
    if not sys.path or sys.path[0] not in ("", str(Path.cwd())):
        sys.path.insert(0, str(Path.cwd()))
    for place in (name, f"rl4sys.{name}"):
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as problem:
            # The example exists, but a module that it imports does not.
            if problem.name is None or not place.startswith(problem.name):
                raise
            continue
        if hasattr(module, "get_variant_spec"):
            return module
    raise ConfigError(
        f"{name!r} is not an example: no module with this name has a function get_variant_spec(args). "
        "Known: examples.development, examples.multi_goal"
    )


def _resume(console: Console, args: Namespace, wanted: ExperimentConfig) -> None:
    """Continue the run of ``--restore``. Raises ConfigError for another experiment, or if a newer checkpoint exists."""
    from rl4sys.cli.commands.train import resume_run
    from rl4sys.training.policy_source import find_policy_source

    source = find_policy_source(str(Path(args.restore).expanduser()), _ROOT, None)
    if source.run is None:
        raise ConfigError(f"--restore is {args.restore!r}, a policy file; expected a checkpoint directory or a run")
    newest = source.run.checkpoints.resolve("latest")
    if source.checkpoint != newest:
        raise ConfigError(
            f"--restore is {source.checkpoint}, but training continues only from the newest checkpoint of a run; "
            f"use --restore {source.run.path}/checkpoints/{newest}"
        )
    found = source.run.config
    for block in ("algorithm", "environment"):
        then, now = getattr(found, block).name, getattr(wanted, block).name
        if then != now:
            raise ConfigError(
                f"--restore {args.restore!r} was trained with the {block} {then!r}, but the options give {now!r}; "
                f"remove the options, or restore a checkpoint of {now!r}"
            )
    dry, debug = args.command == "run_example_dry", args.command == "run_example_debug"
    resume_run(console, source.run.path, None, [], dry_run=dry, debug=debug)


if __name__ == "__main__":
    main()
