"""Whether soft Q-learning reaches each of the four goals of its plane: shares of many paths, and pictures.

    python benchmarks/multigoal.py RUN... [--paths 1000] [--pictures docs/images]

RUN is the directory of a run of the experiment `sql_multigoal`. The policy draws its actions, as it did while it
learnt. Pictures are of the first run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rl4sys.algorithms.sql import SoftQ
from rl4sys.environments.multigoal import GOALS, MultiGoal, MultiGoalOptions
from rl4sys.environments.multigoal_plots import draw_q, draw_rollouts
from rl4sys.experiment.run import Run
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import STATE, Array
from rl4sys.trainer import Progress, trained_learner, trained_policy

_LONGEST = 30
_DRAWN = 50
"""Paths in a picture."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    for directory in options.runs:
        run = Run.open(directory)
        paths = walk(trained_policy(run, "latest", Silent()), options.paths)
        print(directory.name, *(f"{share:.1%}" for share in shares(paths)), "(right, left, up, down, none)")
    if options.pictures:
        draw(Run.open(options.runs[0]), options.pictures)


class Silent:
    def note(self, message: str) -> None:
        """It is known already."""

    def progress(self, progress: Progress) -> None:
        """Nothing is trained."""


def walk(policy: Policy, count: int) -> list[Array]:
    """The positions of each path, from the middle on."""
    draws, plane = Draws(1), MultiGoal(MultiGoalOptions())
    return [path(policy, plane, draws, seed) for seed in range(count)]


def path(policy: Policy, plane: MultiGoal, draws: Draws, seed: int) -> Array:
    position, _ = plane.reset(seed=seed)
    positions, there = [position], False
    while not there and len(positions) <= _LONGEST:
        action = policy.act({STATE: position[None]}, {}, draws).action[0]
        position, _, there, _, _ = plane.step(action)
        positions.append(position)
    return np.array(positions)


def shares(paths: list[Array]) -> Array:
    """Of each goal, and of none."""
    ends = np.array([path[-1] for path in paths])
    distances = np.linalg.norm(ends[:, None] - GOALS, axis=-1)
    reached = np.where(distances.min(1) < 1, distances.argmin(1), len(GOALS))
    return np.bincount(reached, minlength=len(GOALS) + 1) / len(paths)


def draw(run: Run, folder: Path) -> None:
    policy = trained_policy(run, "latest", Silent())
    algorithm = trained_learner(run, "latest", Silent()).algorithm
    assert isinstance(algorithm, SoftQ)
    draw_rollouts(walk(policy, _DRAWN)).savefig(folder / "multigoal_paths.png", dpi=80)
    draws = Draws(2)
    draw_q(
        lambda states, actions: algorithm.values({STATE: states}, actions),
        lambda states: policy.act({STATE: states}, {}, draws).action,
    ).savefig(folder / "multigoal_values.png", dpi=80)


if __name__ == "__main__":
    main()
