"""Progress display for Jupyter notebooks."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from rl4sys.training.progress import Progress

_REFRESH_SECONDS = 0.25


def in_notebook() -> bool:
    """Return True in a Jupyter kernel, which can display HTML."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookDisplay:
    """Training observer that shows a progress bar in the output of a notebook cell."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._notes: list[str] = []
        self._progress: Progress | None = None
        self._shown_at = 0.0
        self._handle: Any = None

    def __enter__(self) -> NotebookDisplay:
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._show()

    def note(self, message: str) -> None:
        """Show a note below the bar."""
        self._notes.append(message)
        self._show()

    def progress(self, progress: Progress) -> None:
        """Update the bar, at most four times per second."""
        self._progress = progress
        if time.monotonic() - self._shown_at >= _REFRESH_SECONDS:
            self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        self._shown_at = time.monotonic()
        content = HTML(self._html())
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def _html(self) -> str:
        progress = self._progress
        share = 0.0 if progress is None else min(1.0, progress.steps / progress.total_timesteps)
        text = "starting" if progress is None else figures(progress)
        notes = "".join(f"<div>note: {escape(note)}</div>" for note in self._notes)
        bar = f'<progress max="1" value="{share:.4f}" style="width: 16em"></progress>'
        return f"<div><b>{escape(self._title)}</b> {bar} {share:.0%}&ensp;{escape(text)}</div>{notes}"


def figures(progress: Progress) -> str:
    """Format steps, speed and returns of a run in one line of text."""
    parts = [
        f"{progress.steps:,} of {progress.total_timesteps:,} steps",
        f"{progress.steps_per_second:,.0f} steps/s",
    ]
    if progress.recent_return is not None:
        parts.append(f"return {progress.recent_return:.1f}")
    if progress.evaluation is not None:
        parts.append(f"evaluation {progress.evaluation.mean_return:.1f}")
    return ", ".join(parts)
