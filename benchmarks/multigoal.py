"""Whether soft Q-learning reaches each of the four goals of its plane: shares of many paths, and pictures.

    python benchmarks/multigoal.py [--root experiments/results]

Trains the experiment `sql_multigoal` with seeds 1, 2 and 3, unless such runs are there. The policy draws its actions,
as it did while it learnt. Shares are kept in docs/multigoal.json, for the page that learning.py writes; pictures are of
the first run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from runs import ROOT, SEEDS, trained

from rl4sys.algorithms.sql import SoftQ
from rl4sys.environments.multigoal import GOALS, MultiGoal, MultiGoalOptions
from rl4sys.environments.multigoal_plots import draw_q, draw_rollouts
from rl4sys.experiment.run import Run
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import STATE, Array
from rl4sys.trainer import Progress, trained_learner, trained_policy

EXPERIMENT = "sql_multigoal"
DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "multigoal.json"
PATHS = 1000
_LONGEST = 30
_DRAWN = 50
"""Paths in a picture."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    runs = [Run.open(trained(["train", EXPERIMENT], seed, options.root / EXPERIMENT)) for seed in SEEDS]
    reached = [shares(walk(trained_policy(run, "latest", Silent()), PATHS)).tolist() for run in runs]
    FIGURES.write_text(json.dumps(reached) + "\n")
    draw(runs[0], DOCS / "images")
    print(table(reached))


def table(reached: list[list[float]]) -> str:
    lines = ["| | right | left | up | down | none |", "|---" * 6 + "|"]
    for seed, of_seed in zip(SEEDS, reached, strict=True):
        lines.append(f"| seed {seed} | {' | '.join(f'{share:.1%}' for share in of_seed)} |")
    return "\n".join(lines)


def section() -> str:
    """For the page of results; nothing where nothing is kept."""
    if not FIGURES.is_file():
        return ""
    return f"""## Soft Q-learning on the plane with four goals

Which goal each of {PATHS:,} paths ends at, after 10,000 steps (`python benchmarks/multigoal.py`; targets:
at least 10 % each, and at most 15 % at none). The policy draws its actions, as it did while it learnt.

{table(json.loads(FIGURES.read_text()))}

Paths of seed 1, and in three places the value of every action (lines) with actions that were drawn (crosses):

![Paths](images/multigoal_paths.png)

![Values](images/multigoal_values.png)
"""


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
