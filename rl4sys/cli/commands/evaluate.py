"""Command ``rl4sys evaluate``: play evaluation episodes with a trained policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.arguments import Debug, RunArgument
from rl4sys.cli.views.console import ConsoleNotes
from rl4sys.training.policy_source import check_compatible, policy_source

if TYPE_CHECKING:
    from rl4sys.environments.evaluation import Evaluation


def evaluate(
    run: RunArgument,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 100,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint: latest, best, a name such as step_000000050000, or version_N of a server's policy.",
            show_default="latest; newest version of a server's policy",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the episodes.", show_default="seed of the run")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment to evaluate in, such as the simulator of a live system.",
            show_default="environment of the run",
        ),
    ] = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions as in training instead of acting greedily.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    debug: Debug = False,
) -> None:
    """Evaluate a trained policy over complete episodes with greedy actions.

    - `rl4sys evaluate experiments/ppo_cartpole_… --checkpoint best` evaluates the best checkpoint of a run.

    - `rl4sys evaluate live/lunar_lander --environment LunarLander-v3` evaluates the newest version of a policy.

    - `rl4sys evaluate experiments/ppo_cartpole_… --json` prints all returns and lengths as JSON.
    """
    from rl4sys.environments.evaluation import evaluate as run_episodes
    from rl4sys.runs.query import find_run
    from rl4sys.runs.run import Run

    opened = Run.open(find_run(run, root))
    source = policy_source(opened, checkpoint)
    policy = source.load_policy(ConsoleNotes(Console(stderr=True)))
    policy = policy if stochastic else policy.greedy()
    chosen = opened.config.experiment.seed if seed is None else seed
    where = opened.config.environment
    if environment is not None:
        where = where.model_copy(update={"name": environment, "family": "gym", "options": {}})
        check_compatible(where, policy)
    result = run_episodes(where, policy, episodes, chosen)
    if as_json:
        typer.echo(json.dumps(_as_json(result, opened.path, source.checkpoint)))
    else:
        _show(Console(), result, source.title)


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


def _show(console: Console, result: Evaluation, title: str) -> None:
    table = Table(title=escape(title), show_header=False, title_justify="left")
    table.add_row("mean return", f"{result.mean_return:.2f} ± {result.std_return:.2f}")
    table.add_row("lowest, highest", f"{min(result.returns):.2f}, {max(result.returns):.2f}")
    table.add_row("mean length", f"{sum(result.lengths) / len(result.lengths):.1f} steps")
    table.add_row("episodes", str(len(result.episodes)))
    console.print(table)
