"""``rl4sys simulate``."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rl4sys.cli.notes import Notes
from rl4sys.cli.subject import Place, environment_of, find_place
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.environments.evaluate import Evaluation
    from rl4sys.environments.rollouts import View


class Render(StrEnum):
    """How rollouts are shown while they happen."""

    human = "human"
    none = "none"


def simulate(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="A run (its directory, name or id), one of its checkpoint directories, or a policy.safetensors.",
            show_default=False,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of the block `environment` to change, such as wrapper=atari.",
            show_default=False,
        ),
    ] = None,
    max_path_length: Annotated[int, typer.Option(min=1, help="Cut rollouts after so many steps.")] = 1000,
    num_rollouts: Annotated[int, typer.Option(min=1, help="How many episodes, one after the other.")] = 1,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all rollouts to this .mp4 or .gif; needs no display.")
    ] = None,
    render: Annotated[Render, typer.Option(help="human shows the rollouts in a window.")] = Render.none,
    render_kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help='Another way to say so: \'{"mode": "human"}\'.')
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="latest, best, or the name of one, such as step_000000050000.", show_default="latest"),
    ] = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Act as in training, with chance, instead of greedily.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Begin from another seed than the run's evaluations did.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME_OR_FILE", help="Act in this environment, or in that of this config, instead."),
    ] = None,
    root: Annotated[Path, typer.Option(help="Where runs are looked for by name or id.")] = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Watch a trained policy act: what it gets, and on request a video or a window.

    - `rl4sys simulate ppo_cartpole_… --num-rollouts 3` prints return and length of three rollouts.

    - `rl4sys simulate ppo_cartpole_… --checkpoint best --video best.mp4` films the best policy of a run.

    - `rl4sys simulate experiments/…/checkpoints/step_000000050000 --render human` shows one in a window.

    - `rl4sys simulate policy.safetensors --environment LunarLander-v3` needs nothing but the policy.
    """
    from rl4sys.environments.rollouts import Rollouts, roll_out

    window = render is Render.human or _asks_for_window(render_kwargs)
    _check_view(video, window=window)
    place = find_place(subject, root, checkpoint)
    policy = place.policy(Notes(Console(stderr=True)))
    where = environment_of(place, policy, environment, changes or [])
    rollouts = Rollouts(num_rollouts, max_path_length, place.seed if seed is None else seed)
    with _view(video, window=window) as view:
        result = roll_out(where, policy if stochastic else policy.greedy(), rollouts, view)
    if as_json:
        typer.echo(json.dumps(_as_json(result, place, where.name, video)))
    else:
        _show(Console(), result, num_rollouts, place, video)


def _asks_for_window(render_kwargs: str | None) -> bool:
    """What the other way to ask for a window asks for."""
    if render_kwargs is None:
        return False
    try:
        wanted = json.loads(render_kwargs)
    except ValueError as problem:
        raise ConfigError(f"--render-kwargs is {render_kwargs!r}, which is not JSON: {problem}") from problem
    if not isinstance(wanted, dict) or wanted.keys() != {"mode"} or wanted["mode"] not in ("human", "rgb_array"):
        raise ConfigError(
            f"--render-kwargs is {render_kwargs}; it should be "
            """'{"mode": "human"}' for a window, or '{"mode": "rgb_array"}' for none"""
        )
    return bool(wanted["mode"] == "human")


def _check_view(video: Path | None, *, window: bool) -> None:
    from rl4sys.environments.rollouts import check_display
    from rl4sys.environments.video import check_video

    if window and video is not None:
        raise ConfigError("--render human and --video do not go together; call the command once for each")
    if window:
        check_display()
    if video is not None:
        check_video(video)


def _view(video: Path | None, *, window: bool) -> AbstractContextManager[View | None]:
    from rl4sys.environments.rollouts import WINDOW
    from rl4sys.environments.video import Video

    if video is not None:
        return Video(video)
    return nullcontext(WINDOW if window else None)


def _as_json(result: Evaluation, place: Place, environment: str, video: Path | None) -> dict[str, object]:
    return {
        "subject": str(place.file or (place.run and place.run.path)),
        "checkpoint": place.checkpoint or None,
        "environment": environment,
        "mean_return": result.mean_return,
        "std": result.std_return,
        "returns": result.returns,
        "lengths": result.lengths,
        "video": str(video) if video else None,
    }


def _show(console: Console, result: Evaluation, number: int, place: Place, video: Path | None) -> None:
    console.print(place.title, soft_wrap=True, highlight=False, markup=False)
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
