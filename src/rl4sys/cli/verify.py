"""``rl4sys verify``."""

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

if TYPE_CHECKING:
    from rl4sys.lab.difference import Difference
    from rl4sys.lab.verdict import Tell, Verdict

_DIFFERS, _INTERRUPTED = 1, 130
_MOST_SHOWN = 8
_PARTS = {
    "metrics": ("row of metrics", "rows of metrics"),
    "experience": ("digest of experience", "digests of experience"),
    "checkpoint": ("checkpoint", "checkpoints"),
    "policy": ("policy", "policies"),
}


def verify(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run: its directory, its id, or the beginning of either.", show_default=False
        ),
    ],
    steps: Annotated[
        int | None, typer.Option(min=0, help="Repeat and compare up to this step only.", show_default=False)
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Repeat with so many threads instead of experiment.threads.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Repeat a run from its stored config and seed, and say whether it comes out the same, bit for bit.

    Compared are the metrics row by row, what environments showed and what was done (by digest), and at every checkpoint
    that is still there all weights, optimisers, buffers and random numbers, and the policy. The repetition is made in a
    temporary directory; the run stays as it is. It ends early where the two have parted.

    Exit code: 0 identical, 1 it differs, 2 it could not be verified.

    - `rl4sys verify experiments/ppo_cartpole_…` repeats a run to where it got.

    - `rl4sys verify experiments/ppo_cartpole_… --steps 10000` repeats the first part of it.
    """
    from rl4sys.experiment.run import Run
    from rl4sys.experiment.store import find_run
    from rl4sys.lab.verify import verify as repeat_and_compare

    opened = Run.open(find_run(run, root))
    try:
        with _progress() as tell:
            verdict = repeat_and_compare(opened, steps=steps, threads=threads, tell=tell)
    except KeyboardInterrupt:
        # Not 1, which would say that the run differs.
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(_as_json(verdict), indent=1))
    else:
        _show(Console(), verdict)
    if not verdict.identical:
        raise typer.Exit(_DIFFERS)


@contextmanager
def _progress() -> Iterator[Tell]:
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("repeating", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "run": str(verdict.run),
        "identical": verdict.identical,
        "steps": verdict.steps,
        "of_steps": verdict.of_steps,
        "compared": {**verdict.compared.things, "leaves": verdict.compared.leaves},
        "first_difference_step": verdict.first[0].step if verdict.first else None,
        "agreed_until": verdict.agreed_until,
        "differences": [asdict(difference) for difference in verdict.differences],
        "reasons": list(verdict.reasons),
        "not_compared": list(verdict.not_compared),
    }


def _show(console: Console, verdict: Verdict) -> None:
    name = escape(verdict.run.name)
    if verdict.identical:
        _line(console, f"{name}: [bold green]identical[/] to step {verdict.steps:,} of {verdict.of_steps:,}")
    else:
        _line(console, f"{name}: [bold red]differs[/], first at step {verdict.first[0].step:,}; {_agreement(verdict)}")
        _show_differences(console, verdict.first)
    compared = verdict.compared.things
    things = ", ".join(
        f"{compared[part]:,} {words[compared[part] != 1]}" for part, words in _PARTS.items() if part in compared
    )
    _line(console, f"  compared: {things}; {verdict.compared.leaves:,} numbers and tensors in all")
    for text in verdict.not_compared:
        _line(console, f"  not compared: {escape(text)}")
    if verdict.reasons:
        _line(console, "other than it was, without a difference:" if verdict.identical else "why that may be:")
    for reason in verdict.reasons:
        _line(console, f"  - {escape(reason)}")


def _agreement(verdict: Verdict) -> str:
    if verdict.agreed_until is None:
        return "nothing was compared before that"
    return f"the same up to step {verdict.agreed_until:,}"


def _show_differences(console: Console, found: tuple[Difference, ...]) -> None:
    for difference in found[:_MOST_SHOWN]:
        _line(console, f"  {difference.part:<11}{escape(difference.in_words())}")
    if len(found) > _MOST_SHOWN:
        _line(console, f"  … and {len(found) - _MOST_SHOWN:,} more at that step; --json lists them")


def _line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)
