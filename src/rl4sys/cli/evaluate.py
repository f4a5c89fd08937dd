"""``rl4sys evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.fit import check_fit
from rl4sys.cli.notes import Notes

if TYPE_CHECKING:
    from rl4sys.environments.evaluate import Evaluation


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run: its directory, its id, or the beginning of either.", show_default=False
        ),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    checkpoint: Annotated[
        str, typer.Option(help="latest, best, or the name of one, such as step_000000050000.")
    ] = "latest",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Start the episodes from other seeds than training did.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="Judge it in this environment instead of its own, such as the simulator of a live system."),
    ] = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Act as in training, with chance, instead of greedily.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Judge a trained policy by whole episodes, acting greedily.

    - `rl4sys evaluate experiments/ppo_cartpole_… --checkpoint best` judges the best policy of a run.

    - `rl4sys evaluate experiments/ppo_cartpole_… --json` prints every return and length for a script.
    """
    from rl4sys.environments.evaluate import evaluate as run_episodes
    from rl4sys.experiment.run import Run
    from rl4sys.experiment.store import find_run
    from rl4sys.trainer import trained_policy

    opened = Run.open(find_run(run, root))
    checkpoint = opened.checkpoints.resolve(checkpoint)
    policy = trained_policy(opened, checkpoint, Notes(Console(stderr=True)))
    policy = policy if stochastic else policy.greedy()
    chosen = opened.config.experiment.seed if seed is None else seed
    where = opened.config.environment
    if environment is not None:
        where = where.model_copy(update={"name": environment, "wrapper": "gym", "options": {}})
        check_fit(where, policy)
    result = run_episodes(where, policy, episodes, chosen)
    if as_json:
        typer.echo(json.dumps(_as_json(result, opened.path, checkpoint)))
    else:
        _show(Console(), result, opened.path, checkpoint)


def _as_json(result: Evaluation, run: Path, checkpoint: str) -> dict[str, object]:
    return {
        "run": str(run),
        "checkpoint": checkpoint,
        "episodes": len(result.episodes),
        "mean_return": result.mean_return,
        "std": result.std_return,
        "returns": result.returns,
        "lengths": result.lengths,
    }


def _show(console: Console, result: Evaluation, run: Path, checkpoint: str) -> None:
    table = Table(title=escape(f"{run.name}, checkpoint {checkpoint}"), show_header=False, title_justify="left")
    table.add_row("mean return", f"{result.mean_return:.2f} ± {result.std_return:.2f}")
    table.add_row("lowest, highest", f"{min(result.returns):.2f}, {max(result.returns):.2f}")
    table.add_row("mean length", f"{sum(result.lengths) / len(result.lengths):.1f} steps")
    table.add_row("episodes", str(len(result.episodes)))
    console.print(table)
