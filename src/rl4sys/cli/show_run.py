"""``rl4sys show``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from rl4sys.experiment.record import RunRecord

_BLOCKS = ("algorithm", "environment", "network", "buffer", "training")
_Line = tuple[str, str]


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run: its directory, its id, or the beginning of either.", show_default=False
        ),
    ],
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every setting.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Show all about one run: how it went, its settings, what it was made with, its checkpoints, where it is.

    - `rl4sys show 3f9c` shows the run whose id begins so.

    - `rl4sys config show experiments/…/configs/config.yaml` prints every setting.
    """
    from rl4sys.experiment.record import read_record, with_true_status
    from rl4sys.experiment.store import find_run

    record = with_true_status(read_record(find_run(run, root)))
    about = _About(record)
    if as_json:
        typer.echo(json.dumps(about.as_object(), indent=1))
    else:
        about.show(Console())


class _About:
    """What the directory of one run holds besides its record."""

    def __init__(self, record: RunRecord) -> None:
        from rl4sys.experiment.checkpoint import CheckpointStore
        from rl4sys.experiment.record import PROVENANCE, STATUS, read_object

        self._record = record
        self._provenance, self._status = read_object(record.path / PROVENANCE), read_object(record.path / STATUS)
        self._checkpoints = CheckpointStore(record.path / "checkpoints")

    def as_object(self) -> dict[str, Any]:
        from rl4sys.cli.list_runs import as_object
        from rl4sys.experiment.cleanup import size_on_disk

        return {
            **as_object(self._record),
            "checkpoints": self._checkpoints.names(),
            "bytes": size_on_disk(self._record.path),
            "status_file": self._status,
            "provenance": self._provenance,
            "settings": self._record.settings,
        }

    def show(self, console: Console) -> None:
        from rl4sys.analysis.wording import figure

        final = self._record.outcome.final
        _print(console, self._record.path.name, [*self._state(), *self._results(), *self._place()])
        _print(console, "final metrics", [(name, figure(final[name])) for name in sorted(final)])
        _print(console, "settings", [(name, _summary(self._record.settings.get(name) or {})) for name in _BLOCKS])
        _print(console, "made with", self._origin())

    def _state(self) -> list[_Line]:
        run, cleaned = self._record, self._status.get("cleaned")
        return [
            ("id", run.id),
            ("status", run.status + (f" (pid {self._status.get('pid')})" if run.status == "running" else "")),
            ("tags", " ".join(run.tags) or "none"),
            ("algorithm", run.algorithm),
            ("environment", run.environment),
            ("seed", str(run.seed)),
            ("started", run.started.replace("T", " ")),
            ("finished", (run.finished or "not yet").replace("T", " ")),
            *([("cleaned up", f"{cleaned}: checkpoints, logs and videos were removed")] if cleaned else []),
        ]

    def _results(self) -> list[_Line]:
        from rl4sys.analysis.wording import figure

        run, total, speed = self._record, self._status.get("total_timesteps"), self._status.get("steps_per_second")
        of, rate = (f" of {total:,}" if total else ""), (f", {speed:,.0f} per second" if speed else "")
        return [
            ("steps", f"{run.steps:,}{of}{rate}"),
            ("reward", figure(run.reward)),
            ("best_reward", figure(run.best_reward)),
        ]

    def _place(self) -> list[_Line]:
        from rl4sys.experiment.cleanup import size_on_disk
        from rl4sys.experiment.machine import in_words

        run, names = self._record, self._checkpoints.names()
        whole = [name for name in names if name not in ("latest", "best")]
        links = [f"{name} is {self._checkpoints.resolve(name)}" for name in names if name not in whole]
        return [
            ("checkpoints", ", ".join([*whole, *links]) or "none"),
            ("directory", str(run.path)),
            ("on disk", in_words(size_on_disk(run.path))),
            ("config", f"{run.config_hash}{self._siblings()}"),
        ]

    def _siblings(self) -> str:
        """Other seeds of the same config."""
        from rl4sys.experiment.store import Store, root_of

        runs = Store(root_of(self._record.path)).runs()
        same = [run for run in runs if run.config_hash == self._record.config_hash and run.id != self._record.id]
        return f"; also trained as {', '.join(f'{run.id} (seed {run.seed})' for run in same)}" if same else ""

    def _origin(self) -> list[_Line]:
        made = self._provenance
        packages = made.get("packages") or {}
        return [
            ("command", " ".join(map(str, made.get("command") or ()))),
            ("git", str(made.get("git_hash") or "not in a repository")),
            ("python", f"{made.get('python', '')} on {made.get('platform', '')}, {made.get('cpus', '?')} cores"),
            ("packages", ", ".join(f"{name} {version}" for name, version in packages.items())),
            ("resumed", ", ".join(str(life.get("started")) for life in made.get("resumed") or ()) or "never"),
        ]


def _print(console: Console, title: str, lines: Sequence[_Line]) -> None:
    if not lines:
        return
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(escape(name), escape(value))
    console.print(table)
    console.print()


def _summary(block: Mapping[str, Any], at: str = "") -> str:
    """A block on one line; what is null is what the setting is without, and says nothing."""
    parts = [
        _summary(value, f"{at}{key}.") if isinstance(value, Mapping) else f"{at}{key} {value}"
        for key, value in block.items()
        if value is not None and value != {}
    ]
    return ", ".join(parts)
