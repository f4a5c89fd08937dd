"""Selection of runs from command-line arguments."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl4sys.analysis.history import History, open_history
from rl4sys.errors import RunError
from rl4sys.runs.directory import RunDirectory, runs_below
from rl4sys.runs.query import find_run
from rl4sys.runs.store import RunStore, usual_roots


@dataclass(frozen=True)
class Selection:
    """Runs selected by each argument, and notes about skipped runs."""

    chosen: list[tuple[str, list[History]]]
    notes: list[str]

    @property
    def runs(self) -> list[History]:
        return [run for _, runs in self.chosen for run in runs]

    def completed(self) -> Selection:
        """Return a selection of completed runs only. Raises `RunError` if there are none."""
        chosen = [(argument, [run for run in runs if run.state == "completed"]) for argument, runs in self.chosen]
        skipped = [f"skipped: {run.path.name} ({run.state})" for run in self.runs if run.state != "completed"]
        if not any(runs for _, runs in chosen):
            raise RunError("none of these runs has completed; omit --completed to compare them anyway")
        return Selection(chosen, [*self.notes, *skipped])


def select_runs(arguments: Sequence[str], root: Path) -> Selection:
    """Select runs. Each argument is a run, a folder of runs, an experiment name (for all its runs) or a pattern."""
    chosen: list[tuple[str, list[History]]] = []
    notes: list[str] = []
    for argument in arguments:
        paths = _without_debug_runs(_paths(argument, root, notes), notes)
        if len(paths) == 1:
            chosen.append((argument, [open_history(paths[0])]))
            continue
        chosen.append((argument, _open_readable(paths, notes)))
    return Selection(chosen, list(dict.fromkeys(notes)))


def selects_seeds(arguments: Sequence[str], root: Path) -> bool:
    """Return whether the arguments of `analyze` select several runs, and not one run or the folder of a sweep."""
    if len(arguments) > 1 or glob.has_magic(arguments[0]):
        return True
    folders = (Path(arguments[0]), root / arguments[0])
    return not any(folder.is_dir() for folder in folders) and len(_of_experiment(arguments[0], root, [])) > 1


def find_folder(argument: str, root: Path) -> Path:
    """Find a run or a folder of runs, such as a sweep: by path, by name in `root`, or by a prefix of the name."""
    for folder in (Path(argument), root / argument):
        if folder.is_dir():
            return folder
    matches = sorted(path for path in root.glob("*") if path.is_dir() and path.name.startswith(argument))
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches[-5:])
        raise RunError(f"{argument!r} matches several folders: {names}; give a longer prefix")
    return matches[0] if matches else find_run(argument, root)


def _open_readable(paths: Sequence[Path], notes: list[str]) -> list[History]:
    """Open runs; add a note for each that cannot be read."""
    runs = []
    for path in paths:
        try:
            runs.append(open_history(path))
        except RunError as problem:
            notes.append(f"skipped: {problem}")
    return runs


def _without_debug_runs(paths: list[Path], notes: list[str]) -> list[Path]:
    """Remove debug runs and add a note for each, unless all `paths` are debug runs."""
    debug = [path for path in paths if RunDirectory(path).is_debug()]
    if len(debug) == len(paths):
        return paths
    notes += [f"skipped: {path.name} (a debug run)" for path in debug]
    return [path for path in paths if path not in debug]


def _paths(argument: str, root: Path, notes: list[str]) -> list[Path]:
    for folder in (Path(argument), root / argument):
        if folder.is_dir() and (found := runs_below(folder)):
            return found
    if glob.has_magic(argument):
        return _matching(argument, root)
    return _of_experiment(argument, root, notes) or [find_run(argument, root)]


def _matching(pattern: str, root: Path) -> list[Path]:
    # Path.glob does not accept absolute patterns.
    found = {Path(path) for base in (Path(), root) for path in glob.glob(str(base / pattern))}  # noqa: PTH207
    runs = sorted({run for path in found if path.is_dir() for run in runs_below(path)})
    if not runs:
        raise RunError(f"{pattern!r} matches no run in the current directory or {root}; `rl4sys list` shows all runs")
    return runs


def _of_experiment(name: str, root: Path, notes: list[str]) -> list[Path]:
    """Return all runs with this experiment name."""
    stores = [RunStore(place) for place in usual_roots(root)]
    found = [run.path for store in stores for run in store.runs() if run.name == name]
    notes += [note for store in stores for note in store.notes]
    return found
