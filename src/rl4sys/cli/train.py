"""``rl4sys train``. What is heavy to import is imported when it is needed, so that help comes at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys import config as files
from rl4sys.cli.notes import Notes
from rl4sys.cli.words import Words, changes
from rl4sys.config import Settings
from rl4sys.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rl4sys.cli.display import Display
    from rl4sys.experiment.config import ExperimentConfig
    from rl4sys.experiment.run import Run
    from rl4sys.trainer import Progress, Trainer

_INTERRUPTED = 130


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG [KEY.PATH=VALUE]...",
            help="A YAML or JSON file, or the name of a shipped experiment (`rl4sys config list`), then settings to "
            "change, such as algorithm.lr=1e-3.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str | None, typer.Option(help="The config, if not given as the first argument.")] = None,
    seed: Annotated[str | None, typer.Option(help="One seed, or several with commas between for a run each.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Go on with this run, exactly: its directory, its id, or the beginning of one."
        ),
    ] = None,
    total_timesteps: Annotated[
        str | None,
        typer.Option(
            "--total-timesteps", "--total_timesteps", metavar="STEPS", help="Replaces training.total_timesteps."
        ),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Without a config: the algorithm, such as SAC, with its shipped settings.")
    ] = None,
    universe: Annotated[
        str | None, typer.Option(help="Without a config: gym, dm_control, atari, …", show_default="gym")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Without a config: the environment, such as HalfCheetah or walker.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Without a config: its version or task, such as v5 or walk.")] = None,
    exp_name: Annotated[str | None, typer.Option(metavar="NAME", help="Replaces experiment.name.")] = None,
    checkpoint_frequency: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Replaces training.checkpoint_frequency.")
    ] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Replaces experiment.threads.")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="0 trains on the CPU, 1 on a GPU (experiment.device).")
    ] = None,
    root: Annotated[Path, typer.Option(help="Where run directories are made, and looked for.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and run nothing.")] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Train few steps, look into every layer, and say where time and memory go; show tracebacks.",
        ),
    ] = False,
) -> None:
    """Train a policy as a config file says.

    Each run gets a directory of its own under --root with config, metrics, checkpoints and TensorBoard logs.
    Ctrl-C saves and stops; --resume goes on as if never stopped.

    - `rl4sys train ppo_cartpole` trains a shipped experiment.

    - `rl4sys train my.yaml algorithm.lr=1e-3 --seed 1,2,3` trains yours three times.

    - `rl4sys train --algorithm SAC --domain HalfCheetah --task v5` needs no file.

    - `rl4sys train my.yaml --dry-run` shows every setting and what would be built.

    - `rl4sys train my.yaml --debug` trains 5,000 steps with checks of every layer, histograms and a profile.
    """
    console = Console()
    if debug:
        # Torch reads this when it is loaded: its profiler would tell the terminal when it starts and stops.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    assignments = [*(arguments or []), *changes(exp_name, checkpoint_frequency, cpus, gpus)]
    if total_timesteps is not None:
        assignments.append(f"training.total_timesteps={total_timesteps}")
    if resume is not None:
        if seed is not None:
            raise ConfigError(f"--seed {seed} does not go with --resume, which goes on with the seed the run has")
        from rl4sys.experiment.store import find_run

        found = find_run(resume, root)
        _resume(console, found, _source(config, assignments), assignments, dry_run=dry_run, debug=debug)
        return
    read = _reader(_source(config, assignments), Words(algorithm, universe, domain, task), Notes(console))
    configs = [read([*assignments, *change]) for change in _seed_changes(seed)]
    if debug:
        configs = _made_small(console, configs, assignments)
    if dry_run:
        from rl4sys.cli.plan import show_plan

        show_plan(console, configs, root)
        return
    _train_each(console, configs, root, debug=debug)


def _reader(source: str | None, words: Words, notes: Notes) -> Callable[[list[str]], ExperimentConfig]:
    """Makes the experiment that a file, or words of the command line, describe, with settings that change it."""
    from rl4sys.experiment.config import parse_experiment

    if source is not None and words.given:
        raise ConfigError(
            f"{', '.join(words.given)} describe an experiment without a config, and {source} is one; "
            "change its settings instead, such as algorithm.name=sac"
        )
    if source is not None:
        return lambda assignments: _read(source, assignments)
    if not words.given:
        raise ConfigError("no config given; try `rl4sys train ppo_cartpole`, or see `rl4sys config list`")
    settings = words.settings(notes.note)
    return lambda assignments: parse_experiment(files.override(settings, assignments))


def _made_small(console: Console, configs: list[ExperimentConfig], assignments: list[str]) -> list[ExperimentConfig]:
    """As --debug has them: what the command line says stays as it is."""
    from rl4sys.lab.debug import small

    kept = [assignment.partition("=")[0] for assignment in assignments]
    made = [small(config, kept) for config in configs]
    for message in made[0][1]:
        Notes(console).note(message)
    return [config for config, _ in made]


def _source(config: str | None, assignments: list[str]) -> str | None:
    """The config as given: by --config, or as the first argument, which is then taken off ``assignments``."""
    if config is not None or not assignments or "=" in assignments[0]:
        return config
    return assignments.pop(0)


def _train_each(console: Console, configs: list[ExperimentConfig], root: Path, *, debug: bool) -> None:
    from rl4sys.cli.display import show_overview
    from rl4sys.experiment.run import Run

    results: dict[int, tuple[Run, Progress]] = {}
    for number, config in enumerate(configs, 1):
        seed = config.experiment.seed
        if len(configs) > 1:
            console.print(f"[bold]run {number} of {len(configs)}[/], seed {seed}")
        run = Run.create(root, config, datetime.now())
        with run.locked():
            results[seed] = run, _train(console, run, debug=debug)
    if len(configs) > 1 and configs[0].logging.terminal:
        show_overview(console, results)


def _read(source: str, assignments: list[str]) -> ExperimentConfig:
    from rl4sys.experiment.config import parse_experiment

    settings: Settings = files.override(files.load(source), assignments)
    return parse_experiment(settings, beside=files.find(source).parent)


def _seed_changes(seeds: str | None) -> list[list[str]]:
    if seeds is None:
        return [[]]
    numbers = [number.strip() for number in seeds.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"--seed is {seeds!r}; it should be a number such as 1, or several such as 1,2,3")
    return [[f"experiment.seed={int(number)}"] for number in numbers]


def _resume(
    console: Console, path: Path, source: str | None, assignments: list[str], *, dry_run: bool, debug: bool
) -> None:
    from rl4sys.experiment.config import parse_experiment
    from rl4sys.experiment.run import Run

    run = Run.open(path)
    if not run.checkpoints.names():
        raise CheckpointError(
            f"{path} has no checkpoint to go on from: it ended before its first, or `rl4sys cleanup` removed them. "
            f"Start it again: rl4sys train {path}/configs/config.yaml"
        )
    # Held from here on: what another process is training must not change under it.
    with run.locked():
        settings = run.config.to_settings()
        base = _read(source, []).to_settings() if source else settings
        wanted = parse_experiment(files.override(base, assignments))
        _check_same_run(path, settings, wanted.to_settings())
        if dry_run:
            from rl4sys.cli.plan import show_plan

            show_plan(console, [wanted], path.parent)
            return
        _announce_length(console, run.config.training.total_timesteps, wanted)
        run.reconfigure(wanted)
        _train(console, run, resume=True, debug=debug)


def _announce_length(console: Console, before: int, wanted: ExperimentConfig) -> None:
    after = wanted.training.total_timesteps
    if after != before:
        Notes(console).note(f"training.total_timesteps was {before:,} and is {after:,}; schedules now end there")


def _check_same_run(path: Path, settings: Settings, wanted: Settings) -> None:
    """Only the length of training, and what is told of it, may change: any other change would make it another run."""
    differing = [
        f"{key} ({then!r} then, {now!r} now)"
        for key, (then, now) in files.differences(settings, wanted).items()
        if key != "training.total_timesteps" and not key.startswith("alerts.")
    ]
    if differing:
        raise ConfigError(
            f"{path} was started with other settings: {', '.join(differing)}. Resume without a config to go on with "
            "its own, or start a new run; only training.total_timesteps and alerts may change"
        )


def _train(console: Console, run: Run, *, resume: bool = False, debug: bool = False) -> Progress:
    from rl4sys.cli.display import Display, show_run, show_summary

    enabled = run.config.logging.terminal
    display = Display(console, run.config.training.total_timesteps, enabled=enabled)
    trainer = _make_trainer(run, display, resume=resume, debug=debug)
    if trainer.progress().finished:
        display.note(f"{run.path} has its {trainer.progress().steps:,} steps; a larger --total-timesteps trains on")
        return trainer.progress()
    if enabled:
        show_run(console, run)
    with ExitStack() as stack:
        if debug:
            stack.callback(_show_profile, console, trainer)
        stack.enter_context(display)
        stack.enter_context(_stopping_on_signals(trainer))
        progress = trainer.train()
    if enabled:
        show_summary(console, run, progress)
    if not progress.finished:
        raise typer.Exit(_INTERRUPTED)
    return progress


def _show_profile(console: Console, trainer: Trainer) -> None:
    """Whatever the outcome of a debugged run."""
    from rl4sys.cli.profile import show_profile
    from rl4sys.lab.debug import DebugTrainer

    if isinstance(trainer, DebugTrainer):
        show_profile(console, trainer)


def _make_trainer(run: Run, display: Display, *, resume: bool, debug: bool) -> Trainer:
    from rl4sys.trainer import Trainer

    make = Trainer
    if debug:
        from rl4sys.lab.debug import DebugTrainer

        make = DebugTrainer
    try:
        trainer = make(run, display)
    except Exception:
        if not resume:
            run.discard()
        raise
    if resume:
        trainer.resume()
    return trainer


@contextmanager
def _stopping_on_signals(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends training after the present round, saved; the next one at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _frame: object) -> None:
        trainer.stop()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
