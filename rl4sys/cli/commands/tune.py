"""Command ``rl4sys tune``: search for settings with Optuna."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug, take_source
from rl4sys.cli.signals import stop_flag
from rl4sys.cli.views.console import print_line
from rl4sys.config import find, load, override, parse
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.sweeps.tune import Study, TuneConfig

_FAILED, _INTERRUPTED = 1, 130
_CHANGEABLE = ("n_trials", "timeout", "parallel_jobs")
GROUP = "studies"


def tune(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE [KEY.PATH=VALUE]...",
            help="Study config (YAML or JSON), or name of a shipped study (see `rl4sys config list`), then settings to "
            "change in the study, such as n_trials=50, or its experiment, such as training.total_timesteps=1e4.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Study config, instead of the first argument.")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Directory of a study to resume.")] = None,
    root: Annotated[Path, typer.Option(help="Folder for study directories.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the search space without running trials.")] = False,
    debug: Debug = False,
) -> None:
    """Search for better settings with Optuna.

    A study has a directory under --root with its database, one run directory per trial, plots, and a config with the
    best settings. Poor trials are stopped early. --resume continues a stopped or killed study with the same results as
    an uninterrupted study; with a larger n_trials=…, it adds trials. The same config and seed give the same study.

    - `rl4sys tune ppo_tune` runs a shipped study: PPO on CartPole, starting from poor settings.

    - `rl4sys tune my_study.yaml n_trials=100 parallel_jobs=2` changes the number of trials and parallel jobs.

    - `rl4sys tune --resume experiments/my_study_… n_trials=200` continues a study up to 200 trials.
    """
    console = Console()
    given = [*(arguments or [])]
    config = take_source(config, given)
    if resume is not None:
        if config is not None:
            raise ConfigError(
                f"the config {config!r} cannot be combined with --resume, because a resumed study keeps its settings; "
                "remove the config or --resume"
            )
        _resume(console, resume, root, given, dry_run=dry_run)
        return
    if config is None:
        raise ConfigError("no study config given; try `rl4sys tune ppo_tune --dry-run`, or see `rl4sys config list`")
    _start(console, config, root, given, dry_run=dry_run)


def _start(console: Console, source: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.sweeps.series import read_base, read_series_config
    from rl4sys.sweeps.tune import TuneConfig, check_space, create_study

    settings = read_series_config(TuneConfig, source, GROUP, assignments)
    base = read_base(settings, find(source, group=GROUP))
    if dry_run:
        check_space(settings, base)
        _show_search(console, settings)
        return
    _conduct(console, create_study(root, settings, base, datetime.now()), settings.parallel_jobs)


def _show_search(console: Console, settings: TuneConfig, done: int = 0) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "values", title="search space", title_justify="left")
    for key, values in settings.search.items():
        table.add_row(key, escape(str(values.choices or values.model_dump(exclude_defaults=True))))
    console.print(table)
    for point in settings.start:
        console.print(f"start: {point}", markup=False, soft_wrap=True)
    already = f", {done} already finished" if done else ""
    console.print(f"{settings.n_trials} trials{already}, {settings.parallel_jobs} at a time; nothing was run")


def _resume(console: Console, text: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.cli.views.trials import find_series
    from rl4sys.runs.series_files import STUDY_SETTINGS
    from rl4sys.sweeps.tune import TuneConfig, extend_study, open_study

    path = find_series(text, root)
    changes = override({}, assignments)
    wrong = [key for key in changes if key not in _CHANGEABLE]
    if wrong:
        raise ConfigError(
            f"'{wrong[0]}' cannot be changed when a study is resumed; start a new study. "
            f"Settings that can be changed: {', '.join(_CHANGEABLE)}"
        )
    study = open_study(path)
    settings = parse(TuneConfig, {**load(path / STUDY_SETTINGS), **changes})
    if dry_run:
        _show_search(console, settings, study.finished_count)
        return
    _conduct(console, extend_study(study, settings.n_trials, settings.timeout), settings.parallel_jobs)


def _conduct(console: Console, study: Study, jobs: int) -> None:
    from rl4sys.cli.views.trials import Board, limited_jobs
    from rl4sys.sweeps.processes import ProcessEngine, available_cores
    from rl4sys.sweeps.scheduler import TrialScheduler

    series = study.series
    engine = ProcessEngine(limited_jobs(console, jobs, available_cores()))
    done = study.finished_count
    already = f", {done} already finished" if done else ""
    print_line(console, f"{study.config.n_trials} trials{already}; directory: {series.path}")
    with series.locked(), stop_flag() as stopping:
        with Board(console, series, study.statuses) as board:
            TrialScheduler(study, engine, board, series.config.retries).run(stopping)
        _finish(console, study)
        if stopping():
            print_line(console, f"stopped; resume:  rl4sys tune --resume {series.path}")
            raise typer.Exit(_INTERRUPTED)


def _finish(console: Console, study: Study) -> None:
    from rl4sys.cli.views.trials import show_failures, show_ranking
    from rl4sys.sweeps.ranking import BEST, rank_series, write_ranking
    from rl4sys.sweeps.study_plots import draw_study

    series = study.series
    ranking = rank_series(series, study.completed())
    write_ranking(series, ranking)
    show_ranking(console, ranking, series.config.metric)
    _show_importances(console, study)
    if ranking:
        for place in draw_study(study):
            print_line(console, f"plot:             {place}")
        print_line(console, f"train best point: rl4sys train {series.path / BEST}")
    pruned = sum(trial.state.name == "PRUNED" for trial in study.optuna_study.trials)
    print_line(
        console, f"{study.finished_count} of {study.config.n_trials} trials done, {pruned} of them stopped early"
    )
    if show_failures(console, series, study.statuses):
        raise typer.Exit(_FAILED)


def _show_importances(console: Console, study: Study) -> None:
    from rich.table import Table

    found = study.optuna_study.importances()
    table = Table("setting", "importance", title="importance of settings", title_justify="left")
    for key, share in found.items():
        table.add_row(key, f"{share:.0%}")
    if found:
        console.print(table)
