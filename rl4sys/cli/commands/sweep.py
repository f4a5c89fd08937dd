"""Command ``rl4sys sweep``: train combinations of settings in parallel."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug, take_source
from rl4sys.cli.signals import stop_flag
from rl4sys.cli.views.console import print_line
from rl4sys.config import did_you_mean, find, override, parse
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.runs.config import ExperimentConfig
    from rl4sys.sweeps.sweep import Sweep, SweepConfig

_FAILED, _INTERRUPTED = 1, 130
_CHANGEABLE = ("parallel_jobs", "retries", "metric", "direction", "summary")
GROUP = "sweeps"


def sweep(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE [KEY.PATH=VALUE]...",
            help="Sweep config (YAML or JSON), or name of a shipped sweep (see `rl4sys config list`), then settings to "
            "change in the sweep, such as parallel_jobs=2, or its experiment, such as training.total_timesteps=1e4.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Sweep config, instead of the first argument.")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Directory of a sweep to resume.")] = None,
    root: Annotated[Path, typer.Option(help="Folder for sweep directories.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials without running them.")] = False,
    debug: Debug = False,
) -> None:
    """Train an experiment with many combinations of settings in parallel, and rank the combinations.

    A sweep has a directory under --root with one run directory per trial. A stopped or killed sweep continues with
    --resume: finished trials are kept, and the others continue exactly from their checkpoints. A failed trial does not
    stop the other trials, but the exit code is then 1.

    - `rl4sys sweep ppo_sweep` runs a shipped sweep: 27 combinations for PPO on CartPole.

    - `rl4sys sweep my_sweep.yaml --dry-run` lists the trials of a sweep.

    - `rl4sys sweep --resume experiments/my_sweep_…` continues a stopped sweep.
    """
    console = Console()
    given = [*(arguments or [])]
    config = take_source(config, given)
    if resume is not None:
        if config is not None:
            raise ConfigError(
                f"the config {config!r} cannot be combined with --resume, because a resumed sweep keeps its settings; "
                "remove the config or --resume"
            )
        _resume(console, resume, root, given, dry_run=dry_run)
        return
    if config is None:
        raise ConfigError("no sweep config given; try `rl4sys sweep ppo_sweep --dry-run`, or see `rl4sys config list`")
    _start(console, config, root, given, dry_run=dry_run)


def _start(console: Console, source: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.sweeps.series import read_base, read_series_config
    from rl4sys.sweeps.sweep import SweepConfig, create_sweep

    settings = read_series_config(SweepConfig, source, GROUP, assignments)
    base = read_base(settings, find(source, group=GROUP))
    if dry_run:
        _show_plan(console, settings, base)
        return
    _conduct(console, create_sweep(root, settings, base, datetime.now()), settings.parallel_jobs)


def _show_plan(console: Console, settings: SweepConfig, base: ExperimentConfig) -> None:
    from rl4sys.cli.views.trials import limited_jobs, show_trials
    from rl4sys.sweeps.processes import available_cores
    from rl4sys.sweeps.sweep import check_trials, plan

    trials = plan(settings, base)
    check_trials(settings, base, trials)
    show_trials(console, trials, limited_jobs(console, settings.parallel_jobs, available_cores()))


def _resume(console: Console, text: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.cli.views.trials import find_series, limited_jobs, show_trials
    from rl4sys.sweeps.processes import available_cores
    from rl4sys.sweeps.sweep import open_sweep

    opened = _changed(open_sweep(find_series(text, root)), assignments)
    jobs = opened.series.config.parallel_jobs
    if dry_run:
        show_trials(console, opened.remaining, limited_jobs(console, jobs, available_cores()))
        return
    _conduct(console, opened, jobs)


def _changed(opened: Sweep, assignments: list[str]) -> Sweep:
    """Apply assignments to a resumed sweep. Raises ConfigError for settings that would change its trials."""
    from rl4sys.sweeps.sweep import SweepConfig, reconfigure_sweep

    changes = override({}, assignments)
    wrong = [key for key in changes if key not in _CHANGEABLE]
    if wrong:
        raise ConfigError(
            f"'{wrong[0]}' cannot be changed when a sweep is resumed; start a new sweep. "
            f"Settings that can be changed: {', '.join(_CHANGEABLE)}"
        )
    if not changes:
        return opened
    return reconfigure_sweep(opened, parse(SweepConfig, {**opened.series.config.model_dump(), **changes}))


def _conduct(console: Console, swept: Sweep, jobs: int) -> None:
    from rl4sys.cli.views.trials import Board, limited_jobs
    from rl4sys.sweeps.processes import ProcessEngine, available_cores
    from rl4sys.sweeps.scheduler import TrialScheduler

    series = swept.series
    engine = ProcessEngine(limited_jobs(console, jobs, available_cores()))
    done = sum(status.state == "completed" for status in swept.statuses)
    already = f", {done} already completed" if done else ""
    print_line(console, f"{len(swept.trials)} trials{already}; directory: {series.path}")
    with series.locked(), stop_flag() as stopping:
        with Board(console, series, swept.statuses) as board:
            TrialScheduler(swept, engine, board, series.config.retries).run(stopping)
        _finish(console, swept)
        if stopping() and any(status.state != "completed" for status in swept.statuses):
            print_line(console, f"stopped; resume:  rl4sys sweep --resume {series.path}")
            raise typer.Exit(_INTERRUPTED)


def _finish(console: Console, swept: Sweep) -> None:
    from rl4sys.cli.views.trials import show_failures, show_ranking
    from rl4sys.sweeps.ranking import BEST, rank_series, write_ranking

    series, results = swept.series, swept.statuses
    ranking = rank_series(series, results)
    write_ranking(series, ranking)
    show_ranking(console, ranking, series.config.metric)
    if ranking[0].mean is not None:
        print_line(console, f"train best point: rl4sys train {series.path / BEST}")
        print_line(console, f"analyze:          rl4sys analyze {series.path}")
    elif any(status.state == "completed" for status in results):
        _explain_metric(console, swept)
    failed = show_failures(console, series, results)
    if failed:
        print_line(
            console, f"{failed} of {len(results)} trials failed; retry them:   rl4sys sweep --resume {series.path}"
        )
        raise typer.Exit(_FAILED)


def _explain_metric(console: Console, swept: Sweep) -> None:
    """Print the available metrics after a sweep whose completed trials lack the ranking metric."""
    from rl4sys.runs.directory import RunDirectory

    completed = next(status.trial for status in swept.statuses if status.state == "completed")
    rows = RunDirectory(swept.series.run_path(completed)).metric_rows()
    known = sorted({name for row in rows for name in row} - {"step"})
    metric = swept.series.config.metric
    meant = did_you_mean(metric, known)
    print_line(console, f"no trial has the metric {metric!r}{meant} Available metrics: {', '.join(known)}.")
    print_line(console, f"rank by another metric:  rl4sys sweep --resume {swept.series.path} metric=NAME")
