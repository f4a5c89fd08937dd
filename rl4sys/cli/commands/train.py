"""Command ``rl4sys train``: train and resume runs. Heavy imports are inside functions, so that ``--help`` is fast."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import take_source
from rl4sys.cli.experiment_options import ExperimentOptions, option_assignments
from rl4sys.cli.signals import on_stop_signal, stop_flag
from rl4sys.cli.views.console import ConsoleNotes
from rl4sys.config import Settings, find, load, override
from rl4sys.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rl4sys.cli.views.display import Display
    from rl4sys.runs.config import ExperimentConfig
    from rl4sys.runs.run import Run
    from rl4sys.training.loop import TrainingLoop
    from rl4sys.training.progress import Progress

_INTERRUPTED = 130


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG [KEY.PATH=VALUE]...",
            help="Config file (YAML or JSON), or name of a shipped experiment (see `rl4sys config list`), then "
            "settings to change, such as algorithm.lr=1e-3.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Config file or shipped experiment, instead of the first argument."),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(metavar="SEED,…", help="Seed of the run. Several seeds, separated by commas, train one run each."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of runs to train in parallel, with several seeds.")
    ] = 1,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run to resume exactly: its directory, its ID, or a prefix of either."),
    ] = None,
    total_timesteps: Annotated[
        str | None,
        typer.Option(
            "--total-timesteps",
            "--total_timesteps",
            metavar="STEPS",
            help="Number of training steps (training.total_timesteps).",
        ),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="Without a config: algorithm, such as SAC.")] = None,
    universe: Annotated[
        str | None,
        typer.Option(
            help="Without a config: environment family, such as gym, dm_control or atari.", show_default="gym"
        ),
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Without a config: environment, such as HalfCheetah or walker.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Without a config: version or task of the environment, such as v5 or walk.")
    ] = None,
    exp_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the experiment (experiment.name).")
    ] = None,
    checkpoint_frequency: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Steps between checkpoints (training.checkpoint_frequency).")
    ] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads (experiment.threads).")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Number of GPUs: 0 trains on the CPU, 1 on a GPU (experiment.device).")
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder for run directories.")] = Path("experiments"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show all settings and components without training.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Train a few steps with checks of every layer and a profile; show a traceback on errors.",
        ),
    ] = False,
) -> None:
    """Train a policy from a config file.

    Each run has a directory under --root with config, metrics, checkpoints and TensorBoard logs. Ctrl-C saves a
    checkpoint and stops; --resume continues with results identical to an uninterrupted run.

    - `rl4sys train ppo_cartpole` trains a shipped experiment.

    - `rl4sys train my.yaml algorithm.lr=1e-3 --seed 1,2,3 --jobs 3` trains a config with three seeds in parallel.

    - `rl4sys train --algorithm SAC --domain HalfCheetah --task v5` trains without a config file.

    - `rl4sys train my.yaml --dry-run` shows all settings and components without training.

    - `rl4sys train my.yaml --debug` trains 5,000 steps with checks of every layer, histograms and a profile.
    """
    console = Console()
    if debug:
        # torch reads this variable at import; the value silences messages of the torch profiler.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    assignments = [*(arguments or []), *option_assignments(exp_name, checkpoint_frequency, cpus, gpus)]
    if total_timesteps is not None:
        assignments.append(f"training.total_timesteps={total_timesteps}")
    if resume is not None:
        if seed is not None:
            raise ConfigError(
                f"--seed {seed} cannot be combined with --resume, because a resumed run keeps its seed; remove --seed"
            )
        from rl4sys.runs.query import find_run

        found = find_run(resume, root)
        resume_run(console, found, take_source(config, assignments), assignments, dry_run=dry_run, debug=debug)
        return
    read = _reader(
        take_source(config, assignments), ExperimentOptions(algorithm, universe, domain, task), ConsoleNotes(console)
    )
    configs = [read([*assignments, *change]) for change in _seed_changes(seed)]
    if debug:
        configs = shrink_configs(console, configs, assignments)
    if dry_run:
        from rl4sys.cli.views.plan import show_plan

        show_plan(console, configs, root)
        return
    _start(console, configs, root, jobs, debug=debug)


def _start(console: Console, configs: list[ExperimentConfig], root: Path, jobs: int, *, debug: bool) -> None:
    from rl4sys.runs.run import with_absolute_source

    configs = [with_absolute_source(config, root) for config in configs]
    if jobs == 1:
        train_each(console, configs, root, debug=debug)
    elif debug:
        raise ConfigError("--debug cannot be combined with --jobs, because it checks one run; remove --jobs")
    else:
        train_in_parallel(console, configs, root, jobs)


def _reader(
    source: str | None, options: ExperimentOptions, notes: ConsoleNotes
) -> Callable[[list[str]], ExperimentConfig]:
    """Return a function that builds the experiment config from a file or options, with assignments applied."""
    from rl4sys.runs.config import parse_experiment

    if source is not None and options.given:
        raise ConfigError(
            f"{', '.join(options.given)} cannot be combined with the config {source!r}; "
            "change settings of the config instead, such as algorithm.name=sac"
        )
    if source is not None:
        base = _load(source, notes.note)
        return lambda assignments: parse_experiment(override(base, assignments), beside=find(source).parent)
    if not options.given:
        raise ConfigError("no config given; try `rl4sys train ppo_cartpole`, or see `rl4sys config list`")
    settings = options.to_settings(notes.note)
    return lambda assignments: parse_experiment(override(settings, assignments))


def shrink_configs(console: Console, configs: list[ExperimentConfig], assignments: list[str]) -> list[ExperimentConfig]:
    """Shorten the experiments for --debug and add the debug tag. Settings from the command line are not changed."""
    from rl4sys.diagnostics.debug import shrink_config, tagged_as_debug

    kept = [assignment.partition("=")[0] for assignment in assignments]
    made = [shrink_config(config, kept) for config in configs]
    for message in made[0][1]:
        ConsoleNotes(console).note(message)
    return [tagged_as_debug(config) for config, _ in made]


def train_each(console: Console, configs: list[ExperimentConfig], root: Path, *, debug: bool) -> None:
    """Train the experiments one after another, each in a new run directory below ``root``."""
    from rl4sys.cli.views.display import show_overview
    from rl4sys.runs.run import Run

    results: dict[int, tuple[Run, float | None]] = {}
    for number, config in enumerate(configs, 1):
        seed = config.experiment.seed
        if len(configs) > 1:
            console.print(f"[bold]run {number} of {len(configs)}[/], seed {seed}")
        run = Run.create(root, config, datetime.now())
        with run.locked():
            evaluation = _train(console, run, debug=debug).evaluation
            results[seed] = run, evaluation.mean_return if evaluation else None
    if len(configs) > 1 and configs[0].logging.terminal:
        show_overview(console, results)


def train_in_parallel(console: Console, configs: list[ExperimentConfig], root: Path, jobs: int) -> None:
    """Train the experiments in child processes, each in a new run directory below ``root``."""
    from rl4sys.cli.views.display import show_overview
    from rl4sys.cli.views.parallel import ParallelDisplay
    from rl4sys.runs.run import Run
    from rl4sys.sweeps.parallel import check_parallel, train_parallel

    check_parallel(configs, jobs)
    runs = [Run.create(root, config, datetime.now()) for config in configs]
    with stop_flag() as stopping, ParallelDisplay(console) as display:
        statuses = train_parallel(runs, jobs, display, stopping)
    ended = list(zip(runs, statuses, strict=True))
    show_overview(console, {status.trial.seed: (run, status.value) for run, status in ended})
    failed = [str(status.trial.seed) for status in statuses if status.state == "failed"]
    if failed:
        raise RunError(f"{len(failed)} of {len(runs)} runs failed: seeds {', '.join(failed)}")
    unfinished = [run.path for run, status in ended if status.state != "completed"]
    if unfinished:
        console.print(f"stopped; resume each run, as in:  rl4sys train --resume {unfinished[0]}")
        raise typer.Exit(_INTERRUPTED)


def _load(source: str, note: Callable[[str], None]) -> Settings:
    from rl4sys.runs.config import convert_variant

    return convert_variant(load(source), note)


def _seed_changes(seeds: str | None) -> list[list[str]]:
    if seeds is None:
        return [[]]
    numbers = [number.strip() for number in seeds.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"--seed is {seeds!r}; expected an integer such as 1, or a list such as 1,2,3")
    return [[f"experiment.seed={int(number)}"] for number in numbers]


def resume_run(
    console: Console, path: Path, source: str | None, assignments: list[str], *, dry_run: bool, debug: bool
) -> None:
    """Resume the run in ``path``. A config or assignments may only change the training length and the alerts."""
    from rl4sys.runs.config import parse_experiment
    from rl4sys.runs.run import Run
    from rl4sys.training.session import apply_resumed_config, check_resumable, resumed_config

    run, notes = Run.open(path), ConsoleNotes(console)
    check_resumable(run)
    # Lock before reading: another process must not train or change this run meanwhile.
    with run.locked():
        base = run.config.to_settings()
        if source:
            base = parse_experiment(_load(source, notes.note), beside=find(source).parent).to_settings()
        wanted = resumed_config(run, parse_experiment(override(base, assignments)))
        if dry_run:
            from rl4sys.cli.views.plan import show_plan

            show_plan(console, [wanted], path.parent)
            return
        apply_resumed_config(run, wanted, notes.note)
        _train(console, run, debug=debug)


def _train(console: Console, run: Run, *, debug: bool = False) -> Progress:
    from rl4sys.cli.views.display import Display, show_run, show_summary

    enabled = run.config.logging.terminal
    display = Display(console, run.config.training.total_timesteps, enabled=enabled)
    trainer = _make_trainer(run, display, debug=debug)
    if trainer.progress().finished:
        display.note(
            f"{run.path} has already finished its {trainer.progress().steps:,} steps; "
            "to continue, give a larger --total-timesteps"
        )
        return trainer.progress()
    if enabled:
        show_run(console, run)
    with ExitStack() as stack:
        if debug:
            stack.callback(_show_profile, console, trainer)
        stack.enter_context(display)
        stack.enter_context(on_stop_signal(trainer.stop))
        progress = trainer.train()
    if enabled:
        show_summary(console, run, progress)
    if not progress.finished:
        raise typer.Exit(_INTERRUPTED)
    return progress


def _show_profile(console: Console, trainer: TrainingLoop) -> None:
    """Print the profile if this is a debug run; do nothing otherwise."""
    from rl4sys.cli.views.profile import show_profile
    from rl4sys.diagnostics.debug import DebugTrainingLoop

    if isinstance(trainer, DebugTrainingLoop):
        show_profile(console, trainer)


def _make_trainer(run: Run, display: Display, *, debug: bool) -> TrainingLoop:
    from rl4sys.training.loop import TrainingLoop
    from rl4sys.training.session import open_loop

    make = TrainingLoop
    if debug:
        from rl4sys.diagnostics.debug import DebugTrainingLoop

        make = DebugTrainingLoop
    return open_loop(run, make, display)
