"""Options of the command ``softlearning``: options with an equivalent in RL4Sys, and options without an effect."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from rl4sys.cli.experiment_options import option_assignments
from rl4sys.errors import ConfigError


class _Group(Protocol):
    """Interface of argparse's option group; the class itself is private in argparse."""

    @property
    def add_argument(self) -> Callable[..., object]: ...


_NEVER = 10**12
"""Checkpoint interval in steps that is longer than any training run."""

_NO_EFFECT = {
    "mode": "the command selects the mode",
    "run_eagerly": "torch always runs eagerly",
    "confirm_remote": "no machine is started",
    "checkpoint_at_end": "a checkpoint is always written at the end",
    "checkpoint_replay_pool": "checkpoints always contain the replay buffer",
    "max_failures": "a failed trial is not repeated; continue it with --restore",
    "resources": "the option configures Ray, which is not used",
    "resources_per_trial": "the option configures Ray, which is not used",
    "trial_extra_cpus": "a trial is a single process",
    "trial_extra_gpus": "a trial is a single process",
    "trial_name_template": "run directories are named after the experiment and the time",
    "temp_dir": "the option configures Ray, which is not used",
    "include_webui": "`rl4sys monitor` shows running trials",
    "with_server": "`rl4sys monitor` shows running trials",
}
"""Options that are accepted without an effect, each with the reason."""


def add_flags(parser: ArgumentParser) -> None:
    """Add the options of softlearning's examples to a parser."""
    _add_variant_flags(parser.add_argument_group("experiment"))
    _add_run_flags(parser.add_argument_group("trials and checkpoints"))
    ignored = parser.add_argument_group("accepted without an effect")
    for name, reason in _NO_EFFECT.items():
        ignored.add_argument(_flag(name), nargs="?", const="true", metavar="VALUE", help=f"{reason}")


def assignments(args: Namespace) -> list[str]:
    """Convert the options to ``key=value`` assignments. Raises ConfigError for an option that is not supported."""
    if args.upload_dir is not None:
        raise ConfigError(
            f"--upload-dir is {args.upload_dir!r}, but runs are not uploaded; copy the run directory after training"
        )
    every = _NEVER if args.checkpoint_frequency == 0 else args.checkpoint_frequency
    threads = args.cpus if args.trial_cpus is None else args.trial_cpus
    found = option_assignments(args.exp_name, every, threads, args.gpus if args.trial_gpus is None else args.trial_gpus)
    return [*found, f"logging.video_frequency={args.video_save_frequency}"] if args.video_save_frequency else found


def notes(args: Namespace) -> Iterator[str]:
    """Yield one line for each option in use that has no effect."""
    for name, reason in _NO_EFFECT.items():
        if getattr(args, name) is not None:
            yield f"{_flag(name)} has no effect: {reason}"


def _add_variant_flags(group: _Group) -> None:
    group.add_argument("--algorithm", help="algorithm, such as SAC or SQL")
    group.add_argument("--universe", default="gym", help="environment family: gym or dm_control")
    group.add_argument("--domain", help="environment, such as HalfCheetah or walker")
    group.add_argument("--task", help="version or task, such as v5 or walk")
    group.add_argument("--policy", choices=("gaussian",), default="gaussian", help="policy of the algorithm")
    group.add_argument("--exp-name", metavar="NAME", help="name of the experiment")
    group.add_argument(
        "--video-save-frequency", type=_whole, metavar="STEPS", help="steps between videos; 0 records no videos"
    )


def _add_run_flags(group: _Group) -> None:
    group.add_argument(
        "--num-samples", type=_whole, default=1, metavar="N", help="number of trials; each has another seed"
    )
    group.add_argument(
        "--checkpoint-frequency",
        type=_whole,
        metavar="STEPS",
        help="steps between checkpoints; 0 saves only at the end",
    )
    group.add_argument("--restore", metavar="CHECKPOINT", help="checkpoint or run to continue")
    for name in ("--cpus", "--trial-cpus"):
        group.add_argument(name, type=_whole, metavar="N", help="torch threads of a trial")
    for name in ("--gpus", "--trial-gpus"):
        group.add_argument(name, type=_whole, metavar="N", help="GPUs of a trial: 0 or 1")
    group.add_argument("--upload-dir", metavar="URL", help="not supported")


def _whole(text: str) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= 0:
            return number
    raise ArgumentTypeError(f"the value is {text!r}; expected an integer of at least 0")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
