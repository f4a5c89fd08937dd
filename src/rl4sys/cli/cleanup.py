"""``rl4sys cleanup``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.notes import Notes

if TYPE_CHECKING:
    from rl4sys.experiment.cleanup import Plan
    from rl4sys.experiment.record import RunRecord


def cleanup(
    keep_best: Annotated[
        int, typer.Option(min=0, help="Leave so many runs of each environment whole: those with the best rewards.")
    ] = 10,
    keep_recent: Annotated[
        int, typer.Option(min=0, metavar="DAYS", help="Leave runs whole that something happened to in so many days.")
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs to clean up.")] = Path("experiments"),
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Remove checkpoints, logs and videos of runs that are neither good nor recent.

    Their config, provenance, status, tags and metrics stay (of more than 1,000 rows about as many, with the best and
    the last), so they are listed and compared as before; they can no longer be resumed or evaluated. Never touched are
    runs that are running, policies of a server, trials of a sweep that is not done, and runs that another one's config
    names.

    - `rl4sys cleanup --keep-best 10 --keep-recent 30 --dry-run` shows what would go.
    """
    from rl4sys.cli.list_runs import read_runs
    from rl4sys.experiment.cleanup import Rules, plan_cleanup, strip_run
    from rl4sys.experiment.machine import in_words

    runs, _ = read_runs([root])
    plan = plan_cleanup(runs, Rules(keep_best, timedelta(days=keep_recent)), datetime.now())
    console = Console()
    _show(console, plan, runs)
    if dry_run or not plan.strip:
        return
    _ask(len(plan.strip), in_words(plan.bytes), sure=yes)
    freed = 0
    for path, size in plan.strip.items():
        freed += size if _stripped(path, strip_run, console) else 0
    typer.echo(f"freed {in_words(freed)}")


def _show(console: Console, plan: Plan, runs: list[RunRecord]) -> None:
    from rl4sys.analysis.wording import counted, figure
    from rl4sys.cli.tables import show_table
    from rl4sys.experiment.machine import in_words

    going = [run for run in runs if run.path in plan.strip]
    rows = [
        (run.path.name, run.environment, run.updated[:10], figure(run.best_reward), in_words(plan.strip[run.path]))
        for run in going
    ]
    if rows:
        show_table(
            console, "to be stripped", ("run", "environment", "last change", "best_reward", "frees"), rows, words=3
        )
    for reason, count in _reasons(plan).items():
        typer.echo(f"kept whole, {reason}: {counted(count, 'run')}")
    typer.echo(
        f"{counted(len(going), 'run')} to strip, which frees {in_words(plan.bytes)}" if going else "nothing to do"
    )


def _reasons(plan: Plan) -> dict[str, int]:
    """How many runs stay for each reason."""
    reasons = list(plan.keep.values())
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _ask(count: int, size: str, *, sure: bool) -> None:
    from rl4sys.errors import RunError

    if sure:
        return
    if not sys.stdin.isatty():
        raise RunError("cleanup removes files and asks first, and nobody is here to answer; add --yes")
    typer.confirm(f"remove checkpoints, logs and videos of {count} runs ({size})?", abort=True)


def _stripped(path: Path, strip_run: Callable[[Path, datetime], None], console: Console) -> bool:
    """Whether it was; one that cannot be, such as because it is being trained again, keeps no other from it."""
    from rl4sys.errors import RunError

    try:
        strip_run(path, datetime.now())
    except RunError as problem:
        Notes(console).note(f"left as it is: {problem}")
        return False
    return True
