"""Command ``rl4sys show``: show the details of one run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.arguments import Debug, RunArgument
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.runs.summary import RunSummary

_BLOCKS = ("algorithm", "environment", "network", "buffer", "training")
_Line = tuple[str, str]


def show(
    run: RunArgument,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables, with all settings.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show one run: results, settings, provenance, checkpoints and location; or describe a policy file.

    - `rl4sys show 3f9c` shows the run with an ID starting with 3f9c.

    - `rl4sys show policy.safetensors` shows the spaces, size, hash and operations of a policy.

    - `rl4sys config show experiments/…/configs/config.yaml` prints all settings of a run.
    """
    from rl4sys.runs.query import find_run
    from rl4sys.runs.summary import read_summary, with_current_status

    if run.endswith(".safetensors") and Path(run).is_file():
        _show_policy(Path(run), as_json=as_json)
        return
    record = with_current_status(read_summary(find_run(run, root)))
    details = _RunDetails(record)
    if as_json:
        typer.echo(json.dumps(details.to_json(), indent=1))
    else:
        details.show(Console())


def _show_policy(path: Path, *, as_json: bool) -> None:
    from rl4sys.policy.description import describe
    from rl4sys.policy.snapshot import Snapshot

    if as_json:
        raise ConfigError(f"--json shows a run, but {path} is a policy file; remove --json")
    typer.echo(describe(Snapshot.from_bytes(path.read_bytes())))


class _RunDetails:
    """Summary, provenance, status and checkpoints of one run."""

    def __init__(self, record: RunSummary) -> None:
        from rl4sys.runs.checkpoint import CheckpointStore
        from rl4sys.runs.directory import RunDirectory

        self._record = record
        run = RunDirectory(record.path)
        self._provenance, self._status = run.provenance(), run.status()
        self._checkpoints = CheckpointStore(run.checkpoints)

    def to_json(self) -> dict[str, Any]:
        from rl4sys.cli.run_summaries import run_to_json
        from rl4sys.runs.files import size_on_disk

        return {
            **run_to_json(self._record),
            "checkpoints": self._checkpoints.names(),
            "bytes": size_on_disk(self._record.path),
            "status_file": self._status,
            "provenance": self._provenance,
            "settings": self._record.settings,
        }

    def show(self, console: Console) -> None:
        from rl4sys.analysis.formatting import format_number

        final = self._record.outcome.final
        _print(console, self._record.path.name, [*self._state(), *self._results(), *self._files()])
        _print(console, "final metrics", [(name, format_number(final[name])) for name in sorted(final)])
        _print(console, "settings", [(name, _summary(self._record.settings.get(name) or {})) for name in _BLOCKS])
        _print(console, "provenance", self._origin())

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
        from rl4sys.analysis.formatting import format_number

        run, total, speed = self._record, self._status.get("total_timesteps"), self._status.get("steps_per_second")
        of, rate = (f" of {total:,}" if total else ""), (f", {speed:,.0f} per second" if speed else "")
        return [
            ("steps", f"{run.steps:,}{of}{rate}"),
            ("reward", format_number(run.reward)),
            ("best_reward", format_number(run.best_reward)),
        ]

    def _files(self) -> list[_Line]:
        from rl4sys.machine import format_bytes
        from rl4sys.runs.files import size_on_disk

        run, names = self._record, self._checkpoints.names()
        whole = [name for name in names if name not in ("latest", "best")]
        links = [f"{name} is {self._checkpoints.resolve(name)}" for name in names if name not in whole]
        return [
            ("checkpoints", ", ".join([*whole, *links]) or "none"),
            ("directory", str(run.path)),
            ("on disk", format_bytes(size_on_disk(run.path))),
            ("config", f"{run.config_hash}{self._siblings()}"),
        ]

    def _siblings(self) -> str:
        """Return text that lists the runs with the same config and other seeds, or an empty string."""
        from rl4sys.runs.store import RunStore, root_of

        runs = RunStore(root_of(self._record.path)).runs()
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
            ("resumed", ", ".join(str(attempt.get("started")) for attempt in made.get("resumed") or ()) or "never"),
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
    """Format a config block on one line, without null settings and empty blocks."""
    parts = [
        _summary(value, f"{at}{key}.") if isinstance(value, Mapping) else f"{at}{key} {value}"
        for key, value in block.items()
        if value is not None and value != {}
    ]
    return ", ".join(parts)
