"""Command ``rl4sys simulate``: roll out a trained policy, with an optional video or window."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rl4sys.cli.arguments import Debug
from rl4sys.cli.views.console import ConsoleNotes
from rl4sys.errors import ConfigError
from rl4sys.training.policy_source import PolicySource, find_policy_source, select_environment

if TYPE_CHECKING:
    from rl4sys.environments.evaluation import Evaluation
    from rl4sys.environments.rendering import View


class Render(StrEnum):
    """Display of rollouts: a window, or none."""

    human = "human"
    none = "none"


def simulate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="Run (directory or ID), checkpoint directory, or policy.safetensors file.",
            show_default=False,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings to change in the `environment` block, such as family=atari.",
            show_default=False,
        ),
    ] = None,
    max_path_length: Annotated[int, typer.Option(min=1, help="Maximum length of a rollout, in steps.")] = 1000,
    num_rollouts: Annotated[int, typer.Option(min=1, help="Number of rollouts.")] = 1,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record all rollouts in a .mp4 or .gif file; needs no display.")
    ] = None,
    render: Annotated[Render, typer.Option(help="Display of rollouts: human opens a window.")] = Render.none,
    render_kwargs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Same as --render, in the format of softlearning: \'{"mode": "human"}\'.'),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint: latest, best, a name such as step_000000050000, or version_N of a server's policy.",
            show_default="latest; newest version of a server's policy",
        ),
    ] = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions as in training instead of acting greedily.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the first rollout.", show_default="seed of the run")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Environment name, or config with an `environment` block.",
            show_default="environment of the run",
        ),
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    debug: Debug = False,
) -> None:
    """Roll out a trained policy; optionally record a video or open a window.

    - `rl4sys simulate ppo_cartpole_… --num-rollouts 3` prints the return and length of three rollouts.

    - `rl4sys simulate ppo_cartpole_… --checkpoint best --video best.mp4` records the best checkpoint of a run.

    - `rl4sys simulate experiments/…/checkpoints/step_000000050000 --render human` shows a checkpoint in a window.

    - `rl4sys simulate policy.safetensors --environment LunarLander-v3` simulates a policy file without a run.
    """
    from rl4sys.environments.rendering import Rollouts, roll_out

    window = render is Render.human or _wants_window(render_kwargs)
    _check_view(video, window=window)
    found = find_policy_source(source, root, checkpoint)
    policy = found.load_policy(ConsoleNotes(Console(stderr=True)))
    target = select_environment(found, policy, environment, changes or [])
    rollouts = Rollouts(num_rollouts, max_path_length, found.seed if seed is None else seed)
    with _view(video, window=window) as view:
        result = roll_out(target, policy if stochastic else policy.greedy(), rollouts, view)
    if as_json:
        typer.echo(json.dumps(_as_json(result, found, target.name, video)))
    else:
        _show(Console(), result, num_rollouts, found, video)


def _wants_window(render_kwargs: str | None) -> bool:
    """Return True if ``--render-kwargs`` requests a window. Raises ConfigError if its value is invalid."""
    if render_kwargs is None:
        return False
    try:
        wanted = json.loads(render_kwargs)
    except ValueError as problem:
        raise ConfigError(f"--render-kwargs is {render_kwargs!r}, which is not valid JSON: {problem}") from problem
    if not isinstance(wanted, dict) or wanted.keys() != {"mode"} or wanted["mode"] not in ("human", "rgb_array"):
        raise ConfigError(
            f"--render-kwargs is {render_kwargs!r}; expected "
            """'{"mode": "human"}' for a window, or '{"mode": "rgb_array"}' for no window"""
        )
    return bool(wanted["mode"] == "human")


def _check_view(video: Path | None, *, window: bool) -> None:
    from rl4sys.environments.rendering import check_display
    from rl4sys.environments.video import check_video

    if window and video is not None:
        raise ConfigError("--render human and --video cannot be combined; run the command once for each")
    if window:
        check_display()
    if video is not None:
        check_video(video)


def _view(video: Path | None, *, window: bool) -> AbstractContextManager[View | None]:
    from rl4sys.environments.rendering import WINDOW
    from rl4sys.environments.video import Video

    if video is not None:
        return Video(video)
    return nullcontext(WINDOW if window else None)


def _as_json(result: Evaluation, source: PolicySource, environment: str, video: Path | None) -> dict[str, object]:
    return {
        "subject": str(source.file or (source.run and source.run.path)),
        "checkpoint": source.checkpoint or None,
        "environment": environment,
        "mean_return": result.mean_return,
        "std": result.std_return,
        "returns": result.returns,
        "lengths": result.lengths,
        "video": str(video) if video else None,
    }


def _show(console: Console, result: Evaluation, number: int, source: PolicySource, video: Path | None) -> None:
    console.print(source.title, soft_wrap=True, highlight=False, markup=False)
    agents = len(result.episodes) // number
    table = Table("rollout", *(["agent"] if agents > 1 else []), "return", "steps")
    for index, episode in enumerate(result.episodes):
        rollout, agent = divmod(index, agents)
        who = [str(rollout + 1), *([str(agent + 1)] if agents > 1 else [])]
        table.add_row(*who, f"{episode.total_reward:.2f}", f"{episode.length:,}")
    console.print(table)
    length = sum(result.lengths) / len(result.lengths)
    console.print(f"mean return {result.mean_return:.2f} ± {result.std_return:.2f}, mean length {length:.1f} steps")
    if video is not None:
        console.print(f"video: {video}", soft_wrap=True, highlight=False, markup=False)
