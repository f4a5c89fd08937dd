"""Where the time of a debugged run went, as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from rl4sys.lab.debug import DebugTrainer


def show_profile(console: Console, trainer: DebugTrainer) -> None:
    """Each kind of work, most first; and where to look further."""
    spent = trainer.profile()
    total = sum(one.seconds for one in spent)
    if not total:
        return
    table = Table("time went to", title="profile", title_justify="left")
    for heading in ("seconds", "share", "times", "each"):
        table.add_column(heading, justify="right")
    for one in spent:
        each = one.seconds / one.times
        table.add_row(one.what, f"{one.seconds:.2f}", f"{one.seconds / total:.1%}", f"{one.times:,}", _duration(each))
    table.add_row("all", f"{total:.2f}", "", "", "", style="bold")
    console.print(table)
    console.print(
        f"histograms, findings and trace.json: {trainer.folder}", soft_wrap=True, highlight=False, markup=False
    )


def _duration(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"
