"""Measure the training time until the greedy policy reaches a return, with RL4Sys and with SB3.

    python benchmarks/solve.py [--tasks cartpole,lunarlander] [--seeds 5] [--again]

RL4Sys uses the shipped experiments, SB3 the settings tuned by RL Zoo. Both are evaluated on the same 20 episodes after
the same numbers of steps. The clock is paused during evaluations, and training stops after the first evaluation that
reaches the goal. The libraries run in alternation, on one core with one thread. Results are stored in docs/solve.json;
stored results are reused unless --again is given.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers.results_file import ResultsFile
from peers.runner import Library, Machine

from rl4sys.config import load

FIGURES = Path(__file__).parent.parent / "docs" / "solve.json"
EPISODES, SEEDS = 20, 5
ARMS = ("ours", "sb3")
TITLES = {"ours": "RL4Sys", "sb3": "SB3"}


@dataclass(frozen=True)
class Task:
    name: str
    environment: str
    experiment: str
    """Shipped experiment for RL4Sys."""
    goal: float
    every: int
    """Steps between evaluations."""
    total: int
    num_envs: int
    options: dict[str, Any] = field(hash=False)
    """Settings of SB3, from RL Zoo."""
    falling: dict[str, float] = field(default_factory=dict, hash=False)
    """Settings of SB3 that decrease linearly to 0."""

    def library(self, arm: str) -> Library:
        if arm == "ours":
            return Library("ours", TITLES[arm], "learn_ours", overrides={"settings": load(self.experiment)})
        overrides = {"num_envs": self.num_envs, "options": self.options, "falling": self.falling}
        return Library("sb3", TITLES[arm], "learn_sb3", "sb3", overrides)

    def work(self, seed: int) -> dict[str, Any]:
        evaluation = {"every": self.every, "goal": self.goal, "episodes": EPISODES}
        return {"environment": self.environment, "total": self.total, "seed": seed, **evaluation}


TASKS = (
    Task(
        "cartpole",
        "CartPole-v1",
        "ppo_cartpole",
        goal=475,
        every=5_000,
        total=99_840,
        num_envs=8,
        options={
            "n_steps": 32,
            "batch_size": 256,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "n_epochs": 20,
            "ent_coef": 0.0,
        },
        falling={"learning_rate": 1e-3, "clip_range": 0.2},
    ),
    Task(
        "lunarlander",
        "LunarLander-v3",
        "ppo_lunarlander",
        goal=200,
        every=25_000,
        total=983_040,
        num_envs=16,
        options={
            "n_steps": 1024,
            "batch_size": 64,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    ),
)


@dataclass(frozen=True)
class Solution:
    """Training steps and seconds until the first evaluation at or above the goal; infinite if no evaluation is."""

    steps: float
    seconds: float

    @property
    def found(self) -> bool:
        return math.isfinite(self.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(task.name for task in TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--again", "--anew", action="store_true", help="discard stored results and measure again")
    options = parser.parse_args()
    stored, seeds = ResultsFile(FIGURES, fresh=options.again), range(1, options.seeds + 1)
    tasks = [task for task in TASKS if task.name in options.tasks.split(",")]
    for task in tasks:
        for seed in seeds:
            take_turn(task, seed, stored)
    print(table(tasks, seeds, stored))


def take_turn(task: Task, seed: int, stored: ResultsFile) -> None:
    """Train each library on a task with one seed, unless its result is stored. The order alternates with the seed."""
    for arm in ARMS if seed % 2 else reversed(ARMS):
        key = (task.name, arm, str(seed))
        if key in stored:
            continue
        library = task.library(arm)
        library.prepare()
        machine = Machine.here()
        outcome = library.run(task.work(seed))
        stored.put(key, {**outcome, "machine": asdict(machine)})
        steps, seconds, mean = outcome["curve"][-1]
        log(f"{task.name}, seed {seed}: {library.title} {mean:.0f} after {steps:,} steps, {seconds:.1f} s")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def solution(task: Task, outcome: dict[str, Any]) -> Solution:
    for steps, seconds, mean in outcome["curve"]:
        if mean >= task.goal:
            return Solution(steps, seconds)
    return Solution(math.inf, math.inf)


def table(tasks: Sequence[Task], seeds: Sequence[int], stored: ResultsFile) -> str:
    lines = [
        "| task | | solved | seconds per seed | **median** | median steps | speedup over SB3 |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        solved = {arm: [solution(task, stored[task.name, arm, str(seed)]) for seed in seeds] for arm in ARMS}
        slow = statistics.median(one.seconds for one in solved["sb3"])
        lines += [
            f"| {task.environment}, return {task.goal:g} | {row(TITLES[arm], solved[arm], slow)} |" for arm in ARMS
        ]
    return "\n".join(lines)


def row(title: str, solved: Sequence[Solution], slow: float) -> str:
    median = statistics.median(one.seconds for one in solved)
    each = ", ".join(f"{one.seconds:.3g}" if one.found else "not" for one in solved)
    steps = statistics.median(one.steps for one in solved)
    found = sum(one.found for one in solved)
    # The median is infinite if most seeds failed.
    ratio = f"{slow / median:.1f}" if math.isfinite(median) and math.isfinite(slow) else "—"
    return f"{title} | {found} of {len(solved)} | {each} | **{median:.3g}** | {steps:,.0f} | {ratio}"


def section() -> str | None:
    """Return the section "Time to solve a task" of docs/speed.md, or None without stored results."""
    if not FIGURES.is_file():
        return None
    return f"""## Time to solve a task

Training time in seconds until the mean return of {EPISODES} episodes with the greedy policy reaches the goal
(`benchmarks/solve.py`), on one core. RL4Sys uses the settings of the shipped experiments, SB3 the settings tuned by RL
Zoo. The shipped settings were selected on other seeds: 11 to 20 for CartPole and 11 to 15 for LunarLander. With the
settings of RL Zoo, RL4Sys needs 0.6 s for CartPole and 13 s for LunarLander.

{table(TASKS, range(1, SEEDS + 1), ResultsFile(FIGURES))}
"""


if __name__ == "__main__":
    main()
