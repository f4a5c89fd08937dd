"""``rl4sys sweep``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys import config as files
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.experiment.config import ExperimentConfig
    from rl4sys.lab.sweep import Sweep, SweepConfig

_FAILED, _INTERRUPTED = 1, 130
_CHANGEABLE = ("parallel_jobs", "retries", "metric", "direction", "summary")
GROUP = "sweeps"


def sweep(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE [KEY.PATH=VALUE]...",
            help="A YAML or JSON file, or the name of a shipped sweep (`rl4sys config list`), then settings to change: "
            "of the sweep, such as parallel_jobs=2, or of its experiment, such as training.total_timesteps=1e4.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str | None, typer.Option(help="The file, if not given as the first argument.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Go on with the sweep in this directory.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Where sweeps are kept.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials, and run none.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train an experiment with many combinations of settings, several at once, and rank them.

    A sweep gets a directory under --root, with a run directory for each trial. Killed or stopped, it goes on with
    --resume: finished trials stay as they are, others go on from their checkpoints exactly. A trial that fails does
    not stop the rest; the exit code is then 1.

    - `rl4sys sweep ppo_sweep` runs the shipped one: 27 combinations for PPO on CartPole.

    - `rl4sys sweep my_sweep.yaml --dry-run` lists the trials of yours.

    - `rl4sys sweep --resume experiments/my_sweep_…` goes on.
    """
    console = Console()
    given = [*(arguments or [])]
    if config is None and given and "=" not in given[0]:
        config = given.pop(0)
    if resume is not None:
        if config is not None:
            raise ConfigError(f"{config} does not go with --resume, which goes on with the settings the sweep has")
        _resume(console, resume, root, given, dry_run=dry_run)
        return
    if config is None:
        raise ConfigError("no sweep given; try `rl4sys sweep ppo_sweep --dry-run`, or see `rl4sys config list`")
    _start(console, config, root, given, dry_run=dry_run)


def _start(console: Console, source: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.lab.series import read_base, read_settings
    from rl4sys.lab.sweep import SweepConfig, create_sweep

    settings = read_settings(SweepConfig, source, GROUP, assignments)
    base = read_base(settings, files.find(source, group=GROUP))
    if dry_run:
        _show_plan(console, settings, base)
        return
    _conduct(console, create_sweep(root, settings, base, datetime.now()), settings.parallel_jobs)


def _show_plan(console: Console, settings: SweepConfig, base: ExperimentConfig) -> None:
    from rl4sys.cli.trials import limited_jobs, show_trials
    from rl4sys.lab.processes import cores
    from rl4sys.lab.sweep import check_trials, plan

    trials = plan(settings, base)
    check_trials(settings, base, trials)
    show_trials(console, trials, limited_jobs(console, settings.parallel_jobs, cores()))


def _resume(console: Console, text: str, root: Path, assignments: list[str], *, dry_run: bool) -> None:
    from rl4sys.cli.trials import find_series, limited_jobs, show_trials
    from rl4sys.lab.processes import cores
    from rl4sys.lab.sweep import open_sweep

    opened = _changed(open_sweep(find_series(text, root)), assignments)
    jobs = opened.series.settings.parallel_jobs
    if dry_run:
        show_trials(console, opened.left, limited_jobs(console, jobs, cores()))
        return
    _conduct(console, opened, jobs)


def _changed(opened: Sweep, assignments: list[str]) -> Sweep:
    """Which trials there are, and what they do, stays as it is from one life of a sweep to the next."""
    from rl4sys.lab.sweep import SweepConfig, changed_sweep

    changes = files.override({}, assignments)
    wrong = [key for key in changes if key not in _CHANGEABLE]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} cannot change when a sweep is resumed; {', '.join(_CHANGEABLE)} can. Start a new one"
        )
    if not changes:
        return opened
    return changed_sweep(opened, files.parse(SweepConfig, {**opened.series.settings.model_dump(), **changes}))


def _conduct(console: Console, swept: Sweep, jobs: int) -> None:
    from rl4sys.cli.trials import Board, limited_jobs, line, stopping_on_signals
    from rl4sys.lab.processes import Processes, cores
    from rl4sys.lab.trials import Conductor

    series = swept.series
    engine = Processes(limited_jobs(console, jobs, cores()))
    done = sum(standing.status == "completed" for standing in swept.standings)
    already = f", {done} of them completed already" if done else ""
    line(console, f"{len(swept.trials)} trials{already}; directory: {series.path}")
    with series.locked(), stopping_on_signals() as stopping:
        with Board(console, series, swept.standings) as board:
            Conductor(swept, engine, board, series.settings.retries).conduct(stopping)
        _finish(console, swept)
        if stopping() and any(standing.status != "completed" for standing in swept.standings):
            line(console, f"stopped; go on:   rl4sys sweep --resume {series.path}")
            raise typer.Exit(_INTERRUPTED)


def _finish(console: Console, swept: Sweep) -> None:
    from rl4sys.cli.trials import line, show_failures, show_ranking
    from rl4sys.lab.ranking import BEST, rank, write_ranking

    series, results = swept.series, swept.standings
    ranking = rank(results, series.settings.direction)
    write_ranking(series, ranking)
    show_ranking(console, ranking, series.settings.metric)
    if ranking[0].mean is not None:
        line(console, f"train the best:   rl4sys train {series.path / BEST}")
        line(console, f"look closer:      rl4sys analyze {series.path}")
    elif any(standing.status == "completed" for standing in results):
        _explain_metric(console, swept)
    failed = show_failures(console, series, results)
    if failed:
        line(
            console, f"{failed} of {len(results)} trials failed; try them again:   rl4sys sweep --resume {series.path}"
        )
        raise typer.Exit(_FAILED)


def _explain_metric(console: Console, swept: Sweep) -> None:
    """Nothing could be ranked, though there is something to rank."""
    from rl4sys.cli.trials import line
    from rl4sys.experiment.metrics import read_metrics

    completed = next(standing.trial for standing in swept.standings if standing.status == "completed")
    rows = read_metrics(swept.series.run_path(completed) / "metrics.jsonl")
    known = sorted({name for row in rows for name in row} - {"step"})
    metric = swept.series.settings.metric
    meant = files.did_you_mean(metric, known)
    line(console, f"no trial has the metric {metric}{meant} Known: {', '.join(known)}.")
    line(console, f"rank by another:  rl4sys sweep --resume {swept.series.path} metric=NAME")
