"""Which runs a user means."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl4sys.analysis.history import History, open_history
from rl4sys.errors import RunError
from rl4sys.experiment.record import is_run
from rl4sys.experiment.store import Store, find_run, usual_roots


@dataclass(frozen=True)
class Selection:
    """The runs each argument stands for, and which of them had to be passed over, and why."""

    chosen: list[tuple[str, list[History]]]
    notes: list[str]

    @property
    def runs(self) -> list[History]:
        return [run for _, several in self.chosen for run in several]

    def completed(self) -> Selection:
        """Only the runs that came to their end."""
        chosen = [(argument, [run for run in runs if run.state == "completed"]) for argument, runs in self.chosen]
        left_out = [f"left out: {run.path.name} ({run.state})" for run in self.runs if run.state != "completed"]
        if not any(runs for _, runs in chosen):
            raise RunError("none of these runs has completed; leave --completed away to compare them as they are")
        return Selection(chosen, [*self.notes, *left_out])


def select_runs(arguments: Sequence[str], root: Path) -> Selection:
    """Each argument is a run, a folder of runs, the name of an experiment (all its runs), or a pattern like ppo_*."""
    chosen: list[tuple[str, list[History]]] = []
    notes: list[str] = []
    for argument in arguments:
        paths = _paths(argument, root, notes)
        if len(paths) == 1:
            chosen.append((argument, [open_history(paths[0])]))
            continue
        chosen.append((argument, _readable(paths, notes)))
    return Selection(chosen, list(dict.fromkeys(notes)))


def runs_below(folder: Path) -> list[Path]:
    """The runs in a folder, and in its folders, by name."""
    if is_run(folder):
        return [folder]
    depths = ("*", "*/*", "*/*/*")
    found = {path.parents[1] for depth in depths for path in folder.glob(f"{depth}/configs/config.yaml")}
    return sorted(found)


def find_folder(argument: str, root: Path) -> Path:
    """One run, or one folder of runs such as that of a sweep: a path, or a name in ``root`` or the beginning of one."""
    for folder in (Path(argument), root / argument):
        if folder.is_dir():
            return folder
    begun = sorted(path for path in root.glob("*") if path.is_dir() and path.name.startswith(argument))
    if len(begun) > 1:
        raise RunError(
            f"{argument} may be any of {', '.join(path.name for path in begun[-5:])}; write more of its name"
        )
    return begun[0] if begun else find_run(argument, root)


def _readable(paths: Sequence[Path], notes: list[str]) -> list[History]:
    """One that cannot be read is named and passed over."""
    runs = []
    for path in paths:
        try:
            runs.append(open_history(path))
        except RunError as problem:
            notes.append(f"left out: {problem}")
    return runs


def _paths(argument: str, root: Path, notes: list[str]) -> list[Path]:
    for folder in (Path(argument), root / argument):
        if folder.is_dir() and (found := runs_below(folder)):
            return found
    if glob.has_magic(argument):
        return _matching(argument, root)
    return _of_experiment(argument, root, notes) or [find_run(argument, root)]


def _matching(pattern: str, root: Path) -> list[Path]:
    # Patterns may be absolute, which Path.glob refuses.
    found = {Path(path) for base in (Path(), root) for path in glob.glob(str(base / pattern))}  # noqa: PTH207
    runs = sorted({run for path in found if path.is_dir() for run in runs_below(path)})
    if not runs:
        raise RunError(
            f"no run matches {pattern}, neither as a path nor in {root}; `rl4sys list` shows those there are"
        )
    return runs


def _of_experiment(name: str, root: Path, notes: list[str]) -> list[Path]:
    """All runs whose config gives them this name."""
    stores = [Store(place) for place in usual_roots(root)]
    found = [record.path for store in stores for record in store.runs() if record.name == name]
    notes += [note for store in stores for note in store.notes]
    return found
