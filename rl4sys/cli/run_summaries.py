"""Reading of run summaries for commands, and conversion of a summary to JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rl4sys.cli.views.console import ConsoleNotes

if TYPE_CHECKING:
    from rl4sys.runs.summary import RunSummary


def read_runs(root: list[Path] | None) -> tuple[list[RunSummary], list[Path]]:
    """Return all runs in the given folders (default: ``experiments`` and ``live``) and the folders searched.

    Unreadable runs are skipped, with a note on stderr for each.
    """
    from rl4sys.runs.store import LOCAL, RunStore, usual_roots

    roots = list(dict.fromkeys(root)) if root else usual_roots(LOCAL)
    notes, runs = ConsoleNotes(Console(stderr=True)), []
    for place in roots:
        store = RunStore(place)
        runs += store.runs()
        for note in store.notes:
            notes.note(note)
    return runs, roots


def run_to_json(run: RunSummary) -> dict[str, Any]:
    """Return a run summary as a JSON object; NaN and infinity become null."""
    facts = {name: getattr(run, name) for name in ("id", "name", "algorithm", "environment", "seed", "status", "steps")}
    return {
        **facts,
        "tags": list(run.tags),
        "reward": _finite(run.reward),
        "best_reward": _finite(run.best_reward),
        "started": run.started,
        "finished": run.finished,
        "git_hash": run.git_hash,
        "config_hash": run.config_hash,
        "final": {name: _finite(value) for name, value in run.outcome.final.items()},
        "best": {name: _finite(value) for name, value in run.outcome.best.items()},
        "directory": str(run.path),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None
