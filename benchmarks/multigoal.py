"""Measure how often soft Q-learning reaches each goal of the multigoal environment, and plot paths and Q-values.

    python benchmarks/multigoal.py [--root experiments/results]

Trains the experiment `sql_multigoal` with seeds 1, 2 and 3, unless these runs exist, and evaluates the stochastic
policy. The shares of the goals are stored in docs/multigoal.json; learning.py writes them to docs/results.md. The plots
show the run with seed 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from runs import ROOT, SEEDS, trained

from rl4sys.algorithms.sql import SoftQ
from rl4sys.environments.families.multigoal import GOALS, MultiGoal, MultiGoalOptions
from rl4sys.environments.multigoal_plots import draw_q, draw_rollouts
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.runs.run import Run
from rl4sys.spec import STATE, Array
from rl4sys.training.checkpointing import load_trained_learner, load_trained_policy
from rl4sys.training.progress import Progress

EXPERIMENT = "sql_multigoal"
DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "multigoal.json"
PATHS = 1000
_MAX_STEPS = 30
_PLOTTED_PATHS = 50
"""Number of paths in a plot."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    runs = [Run.open(trained(["train", EXPERIMENT], seed, options.root / EXPERIMENT)) for seed in SEEDS]
    reached = [shares(walk(load_trained_policy(run, "latest", SilentObserver()), PATHS)).tolist() for run in runs]
    FIGURES.write_text(json.dumps(reached) + "\n")
    draw(runs[0], DOCS / "images")
    print(table(reached))


def table(reached: list[list[float]]) -> str:
    lines = ["| | right | left | up | down | none |", "|---" * 6 + "|"]
    for seed, of_seed in zip(SEEDS, reached, strict=True):
        lines.append(f"| seed {seed} | {' | '.join(f'{share:.1%}' for share in of_seed)} |")
    return "\n".join(lines)


def section() -> str:
    """Return the section of docs/results.md; empty without stored results."""
    if not FIGURES.is_file():
        return ""
    return f"""## Soft Q-learning in the multigoal environment

Share of {PATHS:,} episodes that end at each goal, with the stochastic policy after 10,000 training steps. The targets
are at least 10 % for each goal and at most 15 % without a goal (`python benchmarks/multigoal.py`).

{table(json.loads(FIGURES.read_text()))}

The first plot shows paths of episodes with seed 1. The second plot shows the Q-values of all actions (contour lines)
and sampled actions (crosses) at three positions:

![Paths](images/multigoal_paths.png)

![Values](images/multigoal_values.png)
"""


class SilentObserver:
    def note(self, message: str) -> None:
        """Ignore notes."""

    def progress(self, progress: Progress) -> None:
        """Ignore progress."""


def walk(policy: Policy, count: int) -> list[Array]:
    """Run `count` episodes from the center and return the positions in each episode."""
    draws, plane = Draws(1), MultiGoal(MultiGoalOptions())
    return [path(policy, plane, draws, seed) for seed in range(count)]


def path(policy: Policy, plane: MultiGoal, draws: Draws, seed: int) -> Array:
    position, _ = plane.reset(seed=seed)
    positions, reached = [position], False
    while not reached and len(positions) <= _MAX_STEPS:
        action = policy.act({STATE: position[None]}, {}, draws).action[0]
        position, _, reached, _, _ = plane.step(action)
        positions.append(position)
    return np.array(positions)


def shares(paths: list[Array]) -> Array:
    """Return the share of paths that end at each goal and, as the last element, of those that end at no goal."""
    ends = np.array([path[-1] for path in paths])
    distances = np.linalg.norm(ends[:, None] - GOALS, axis=-1)
    reached = np.where(distances.min(1) < 1, distances.argmin(1), len(GOALS))
    return np.bincount(reached, minlength=len(GOALS) + 1) / len(paths)


def draw(run: Run, folder: Path) -> None:
    policy = load_trained_policy(run, "latest", SilentObserver())
    algorithm = load_trained_learner(run, "latest", SilentObserver()).algorithm
    assert isinstance(algorithm, SoftQ)
    draw_rollouts(walk(policy, _PLOTTED_PATHS)).savefig(folder / "multigoal_paths.png", dpi=80)
    draws = Draws(2)
    draw_q(
        lambda states, actions: algorithm.values({STATE: states}, actions),
        lambda states: policy.act({STATE: states}, {}, draws).action,
    ).savefig(folder / "multigoal_values.png", dpi=80)


if __name__ == "__main__":
    main()
