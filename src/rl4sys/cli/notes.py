"""Notes to the user, where nothing else is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from rl4sys.trainer import Progress


class Notes:
    """An observer that shows notes and nothing of the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, message: str) -> None:
        self._console.print(f"[yellow]note[/]: {escape(message)}", soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """Nothing to show."""
