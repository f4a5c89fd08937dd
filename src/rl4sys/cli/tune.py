"""``rl4sys tune``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys import config as files
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.lab.tune import Study, TuneConfig

_FAILED, _INTERRUPTED = 1, 130
_CHANGEABLE = ("n_trials", "timeout", "parallel_jobs")
GROUP = "studies"


def tune(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE [KEY.PATH=VALUE]...",
            help="A YAML or JSON file, or the name of a shipped study (`rl4sys config list`), then settings to change: "
            "of the study, such as n_trials=50, or of its experiment, such as training.total_timesteps=1e4.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str | None, typer.Option(help="The file, if not given as the first argument.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Go on with the study in this directory.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Where studies are kept.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be searched, and run nothing.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Search for better settings with Optuna: each trial is chosen by what the ones before it were worth.

    A study gets a directory under --root with its database, a run directory for each trial, plots, and the best
    settings as a config to train. Trials that fall behind are stopped early. Killed or stopped, a study goes on with
    --resume, to the same results; n_trials=… then makes it longer. The same file and seed give the same study.

    - `rl4sys tune ppo_tune` runs the shipped one: PPO on CartPole from a bad start.

    - `rl4sys tune my_study.yaml n_trials=100 parallel_jobs=2` runs yours, longer than its file says.

    - `rl4sys tune --resume experiments/my_study_… n_trials=200` goes on.
    """
    console = Console()
    given = [*(arguments or [])]
    if config is None and given and "=" not in given[0]:
        config = given.pop(0)
    if resume is not None:
        if config is not None:
            raise ConfigError(f"{config} does not go with --resume, which goes on with the settings the study has")
        _resume(console, resume, root, given, dry_run=dry_run)
        return
    if config is None:
        raise ConfigError("no study given; try `rl4sys tune ppo_tune --dry-run`, or see `rl4sys config list`")
    _start(console, config, root, given, dry_run=dry_run)


def _start(console: Console, source: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.lab.series import read_base, read_settings
    from rl4sys.lab.tune import TuneConfig, check_space, create_study

    settings = read_settings(TuneConfig, source, GROUP, assignments)
    base = read_base(settings, files.find(source, group=GROUP))
    if dry_run:
        check_space(settings, base)
        _show_search(console, settings)
        return
    _conduct(console, create_study(root, settings, base, datetime.now()), settings.parallel_jobs)


def _show_search(console: Console, settings: TuneConfig, done: int = 0) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "values", title="would search", title_justify="left")
    for key, values in settings.search.items():
        table.add_row(key, escape(str(values.choices or values.model_dump(exclude_defaults=True))))
    console.print(table)
    for point in settings.start:
        console.print(f"first: {point}", markup=False, soft_wrap=True)
    already = f", {done} of them done already" if done else ""
    console.print(f"{settings.n_trials} trials{already}, {settings.parallel_jobs} at once; nothing was run")


def _resume(console: Console, text: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.cli.trials import find_series
    from rl4sys.lab.tune import SETTINGS, TuneConfig, lengthen, open_study

    path = find_series(text, root)
    changes = files.override({}, assignments)
    wrong = [key for key in changes if key not in _CHANGEABLE]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} cannot change when a study is resumed; {', '.join(_CHANGEABLE)} can. Start a new one"
        )
    study = open_study(path)
    settings = files.parse(TuneConfig, {**files.load(path / SETTINGS), **changes})
    if dry_run:
        _show_search(console, settings, study.finished)
        return
    _conduct(console, lengthen(study, settings.n_trials, settings.timeout), settings.parallel_jobs)


def _conduct(console: Console, study: Study, jobs: int) -> None:
    from rl4sys.cli.trials import Board, limited_jobs, line, stopping_on_signals
    from rl4sys.lab.processes import Processes, cores
    from rl4sys.lab.trials import Conductor

    series = study.series
    engine = Processes(limited_jobs(console, jobs, cores()))
    done = study.finished
    already = f", {done} of them done already" if done else ""
    line(console, f"{study.settings.n_trials} trials{already}; directory: {series.path}")
    with series.locked(), stopping_on_signals() as stopping:
        with Board(console, series, study.standings) as board:
            Conductor(study, engine, board, series.settings.retries).conduct(stopping)
        _finish(console, study)
        if stopping():
            line(console, f"stopped; go on:   rl4sys tune --resume {series.path}")
            raise typer.Exit(_INTERRUPTED)


def _finish(console: Console, study: Study) -> None:
    from rl4sys.cli.trials import line, show_failures, show_ranking
    from rl4sys.lab.ranking import BEST, rank, write_ranking
    from rl4sys.lab.study_plots import draw_study

    series = study.series
    ranking = rank(study.completed(), series.settings.direction)
    write_ranking(series, ranking)
    show_ranking(console, ranking, series.settings.metric)
    _show_importances(console, study)
    if ranking:
        for place in draw_study(study):
            line(console, f"plot:             {place}")
        line(console, f"train the best:   rl4sys train {series.path / BEST}")
    pruned = sum(trial.state.name == "PRUNED" for trial in study.memory.trials)
    line(console, f"{study.finished} of {study.settings.n_trials} trials are done, {pruned} of them stopped early")
    if show_failures(console, series, study.standings):
        raise typer.Exit(_FAILED)


def _show_importances(console: Console, study: Study) -> None:
    from rich.table import Table

    found = study.memory.importances()
    table = Table("setting", "importance", title="what made the difference", title_justify="left")
    for key, share in found.items():
        table.add_row(key, f"{share:.0%}")
    if found:
        console.print(table)
