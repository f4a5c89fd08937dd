"""Command ``rl4sys cleanup``: delete large files of old runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rl4sys.cli.arguments import Debug
from rl4sys.cli.views.console import ConsoleNotes

if TYPE_CHECKING:
    from rl4sys.runs.cleanup import CleanupPlan
    from rl4sys.runs.summary import RunSummary


def cleanup(
    keep_best: Annotated[
        int, typer.Option(min=0, help="Number of best runs to keep unchanged for each environment.")
    ] = 10,
    keep_recent: Annotated[
        int, typer.Option(min=0, metavar="DAYS", help="Keep runs unchanged if modified in the last DAYS days.")
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    root: Annotated[Path, typer.Option(help="Folder of runs to clean up.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Remove checkpoints, logs and videos of runs that are neither recent nor among the best.

    Config, provenance, status, tags and metrics are kept, so `list` and `compare` still work, but the runs can no
    longer be resumed or evaluated. Metrics are thinned to about 1,000 rows, including the best and last values. Active
    runs, server policies, trials of unfinished sweeps, and runs used by the config of another run are never changed.

    - `rl4sys cleanup --keep-best 10 --keep-recent 30 --dry-run` shows what would be removed.
    """
    from rl4sys.cli.run_summaries import read_runs
    from rl4sys.machine import format_bytes
    from rl4sys.runs.cleanup import CleanupRules, plan_cleanup, strip_run

    runs, _ = read_runs([root])
    plan = plan_cleanup(runs, CleanupRules(keep_best, timedelta(days=keep_recent)), datetime.now())
    console = Console()
    _show(console, plan, runs)
    if dry_run or not plan.strip:
        return
    _confirm(len(plan.strip), format_bytes(plan.bytes), confirmed=yes)
    freed = 0
    for path, size in plan.strip.items():
        freed += size if _try_strip(path, strip_run, console) else 0
    typer.echo(f"freed {format_bytes(freed)}")


def _show(console: Console, plan: CleanupPlan, runs: list[RunSummary]) -> None:
    from rl4sys.analysis.formatting import format_number, pluralize
    from rl4sys.cli.views.console import show_table
    from rl4sys.machine import format_bytes

    going = [run for run in runs if run.path in plan.strip]
    rows = [
        (
            run.path.name,
            run.environment,
            run.updated[:10],
            format_number(run.best_reward),
            format_bytes(plan.strip[run.path]),
        )
        for run in going
    ]
    if rows:
        show_table(
            console,
            "runs to clean up",
            ("run", "environment", "last change", "best_reward", "freed"),
            rows,
            text_columns=3,
        )
    for reason, count in _count_reasons(plan).items():
        typer.echo(f"kept unchanged ({reason}): {pluralize(count, 'run')}")
    typer.echo(
        f"{pluralize(len(going), 'run')} to clean up, {format_bytes(plan.bytes)} to free" if going else "nothing to do"
    )


def _count_reasons(plan: CleanupPlan) -> dict[str, int]:
    """Return the number of runs that are kept unchanged, by reason."""
    reasons = list(plan.keep.values())
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _confirm(count: int, size: str, *, confirmed: bool) -> None:
    from rl4sys.errors import RunError

    if confirmed:
        return
    if not sys.stdin.isatty():
        raise RunError(
            "cleanup asks before it removes files, but stdin is not a terminal; add --yes to remove without asking"
        )
    typer.confirm(f"remove checkpoints, logs and videos of {count} runs ({size})?", abort=True)


def _try_strip(path: Path, strip_run: Callable[[Path, datetime], None], console: Console) -> bool:
    """Clean up a run and return True. If this fails, as during training, print a note and return False."""
    from rl4sys.errors import RunError

    try:
        strip_run(path, datetime.now())
    except RunError as problem:
        ConsoleNotes(console).note(f"not changed: {problem}")
        return False
    return True
