"""Command ``rl4sys verify``: repeat a run and compare the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rl4sys.cli.arguments import Debug, RunArgument

if TYPE_CHECKING:
    from rl4sys.verification.difference import Difference
    from rl4sys.verification.report import ProgressCallback, VerificationReport

_DIFFERS, _INTERRUPTED = 1, 130
_MOST_SHOWN = 8
_PARTS = {
    "metrics": ("row of metrics", "rows of metrics"),
    "experience": ("digest of experience", "digests of experience"),
    "checkpoint": ("checkpoint", "checkpoints"),
    "policy": ("policy", "policies"),
}


def verify(
    run: RunArgument,
    steps: Annotated[
        int | None,
        typer.Option(min=0, help="Last step to repeat and compare; the default is the whole run.", show_default=False),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of CPU threads; the default is experiment.threads of the run.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Repeat a run from its stored config and seed, and check for bit-identical results.

    Compares all metrics rows, digests of observations and actions, and for each stored checkpoint all weights,
    optimizer states, buffers, random generators and the policy. The repetition runs in a temporary directory, does not
    change the run, and stops early after a difference.

    Exit code: 0 if identical, 1 if different, 2 if the run cannot be verified.

    - `rl4sys verify experiments/ppo_cartpole_…` repeats a whole run.

    - `rl4sys verify experiments/ppo_cartpole_… --steps 10000` repeats the first 10,000 steps.
    """
    from rl4sys.runs.query import find_run
    from rl4sys.runs.run import Run
    from rl4sys.verification.verify import verify as repeat_and_compare

    opened = Run.open(find_run(run, root))
    try:
        with _progress() as on_progress:
            report = repeat_and_compare(opened, steps=steps, threads=threads, on_progress=on_progress)
    except KeyboardInterrupt:
        # Do not exit with code 1, which means that the results differ.
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=1))
    else:
        _show(Console(), report)
    if not report.identical:
        raise typer.Exit(_DIFFERS)


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("repeating", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_json(report: VerificationReport) -> dict[str, object]:
    return {
        "run": str(report.run),
        "identical": report.identical,
        "steps": report.steps,
        "of_steps": report.of_steps,
        "compared": {**report.compared.records, "leaves": report.compared.leaves},
        "first_difference_step": report.first[0].step if report.first else None,
        "agreed_until": report.agreed_until,
        "differences": [asdict(difference) for difference in report.differences],
        "reasons": list(report.reasons),
        "not_compared": list(report.not_compared),
    }


def _show(console: Console, report: VerificationReport) -> None:
    name = escape(report.run.name)
    if report.identical:
        _line(console, f"{name}: [bold green]identical[/] to step {report.steps:,} of {report.of_steps:,}")
    else:
        _line(console, f"{name}: [bold red]differs[/], first at step {report.first[0].step:,}; {_agreement(report)}")
        _show_differences(console, report.first)
    compared = report.compared.records
    counts = ", ".join(
        f"{compared[part]:,} {nouns[compared[part] != 1]}" for part, nouns in _PARTS.items() if part in compared
    )
    _line(console, f"  compared: {counts}; {report.compared.leaves:,} numbers and tensors in total")
    for text in report.not_compared:
        _line(console, f"  not compared: {escape(text)}")
    if report.reasons:
        changed = "changed since the run, without effect on the results:"
        _line(console, changed if report.identical else "possible causes:")
    for reason in report.reasons:
        _line(console, f"  - {escape(reason)}")


def _agreement(report: VerificationReport) -> str:
    if report.agreed_until is None:
        return "no earlier step was compared"
    return f"identical up to step {report.agreed_until:,}"


def _show_differences(console: Console, found: tuple[Difference, ...]) -> None:
    for difference in found[:_MOST_SHOWN]:
        _line(console, f"  {difference.part:<11}{escape(difference.describe())}")
    if len(found) > _MOST_SHOWN:
        _line(console, f"  … and {len(found) - _MOST_SHOWN:,} more at that step; --json lists them")


def _line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)
