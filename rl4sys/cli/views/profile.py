"""Profile table of a debug run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from rl4sys.cli.views.console import print_line
from rl4sys.diagnostics.debug import DebugTrainingLoop
from rl4sys.machine import format_bytes


def show_profile(console: Console, trainer: DebugTrainingLoop) -> None:
    """Print the time and RAM of each phase of training, longest first, and the folder with the profile files."""
    spent = trainer.profile()
    total = sum(one.seconds for one in spent)
    if not total:
        return
    table = Table("work", title="profile", title_justify="left")
    for heading in ("seconds", "share", "calls", "per call", "RAM growth", "RAM peak"):
        table.add_column(heading, justify="right")
    for one in spent:
        each = one.seconds / one.count
        times = f"{one.seconds:.2f}", f"{one.seconds / total:.1%}", f"{one.count:,}", _duration(each)
        table.add_row(one.phase, *times, _growth(one.memory_growth), format_bytes(one.memory_peak))
    growth, peak = sum(one.memory_growth for one in spent), max(one.memory_peak for one in spent)
    table.add_row("total", f"{total:.2f}", "", "", "", _growth(growth), format_bytes(peak), style="bold")
    console.print(table)
    print_line(console, f"{', '.join(trainer.written())}: {trainer.folder}")


def _growth(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{format_bytes(abs(size))}"


def _duration(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"
