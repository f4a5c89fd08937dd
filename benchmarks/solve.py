"""Time to solve: seconds of training until the policy, acting greedily, is good enough, beside SB3.

    python benchmarks/solve.py [--tasks cartpole,lunarlander] [--seeds 5] [--anew]

Ours are the shipped experiments; SB3 has the settings that RL Zoo tuned for it. Both are judged over the same 20
episodes after the same numbers of steps, the clock standing still meanwhile, and stop at the first evaluation that
reaches the goal. Each runs on one core with one thread, in turns. Figures are kept in docs/solve.json as they come;
those that are there are not made again unless --anew.
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

from peers.ledger import Ledger
from peers.runner import Entrant, Machine

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
    """Ours, as it ships."""
    goal: float
    every: int
    """Steps between evaluations."""
    total: int
    num_envs: int
    options: dict[str, Any] = field(hash=False)
    """Of SB3, by RL Zoo."""
    falling: dict[str, float] = field(default_factory=dict, hash=False)
    """Those of them that fall linearly to 0."""

    def entrant(self, arm: str) -> Entrant:
        if arm == "ours":
            return Entrant("ours", TITLES[arm], "learn_ours", changes={"settings": load(self.experiment)})
        changes = {"num_envs": self.num_envs, "options": self.options, "falling": self.falling}
        return Entrant("sb3", TITLES[arm], "learn_sb3", "sb3", changes)

    def work(self, seed: int) -> dict[str, Any]:
        judged = {"every": self.every, "goal": self.goal, "episodes": EPISODES}
        return {"environment": self.environment, "total": self.total, "seed": seed, **judged}


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
    """The first evaluation at or above the goal; without one, infinities."""

    steps: float
    seconds: float

    @property
    def found(self) -> bool:
        return math.isfinite(self.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(task.name for task in TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--anew", action="store_true", help="forget the figures that are kept")
    options = parser.parse_args()
    ledger, seeds = Ledger(FIGURES, anew=options.anew), range(1, options.seeds + 1)
    tasks = [task for task in TASKS if task.name in options.tasks.split(",")]
    for task in tasks:
        for seed in seeds:
            take_turn(task, seed, ledger)
    print(table(tasks, seeds, ledger))


def take_turn(task: Task, seed: int, ledger: Ledger) -> None:
    """Both, the one that was second the last time first."""
    for arm in ARMS if seed % 2 else reversed(ARMS):
        key = (task.name, arm, str(seed))
        if key in ledger:
            continue
        entrant = task.entrant(arm)
        entrant.prepare()
        machine = Machine.here()
        outcome = entrant.run(task.work(seed))
        ledger.put(key, {**outcome, "machine": asdict(machine)})
        steps, seconds, mean = outcome["curve"][-1]
        tell(f"{task.name}, seed {seed}: {entrant.title} {mean:.0f} after {steps:,} steps, {seconds:.1f} s")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def solution(task: Task, outcome: dict[str, Any]) -> Solution:
    for steps, seconds, mean in outcome["curve"]:
        if mean >= task.goal:
            return Solution(steps, seconds)
    return Solution(math.inf, math.inf)


def table(tasks: Sequence[Task], seeds: Sequence[int], ledger: Ledger) -> str:
    lines = [
        "| task | | solved | seconds, each seed | **median** | steps, median | times as fast as SB3 |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        solved = {arm: [solution(task, ledger[task.name, arm, str(seed)]) for seed in seeds] for arm in ARMS}
        slow = statistics.median(one.seconds for one in solved["sb3"])
        lines += [f"| {task.environment} to {task.goal:g} | {row(TITLES[arm], solved[arm], slow)} |" for arm in ARMS]
    return "\n".join(lines)


def row(title: str, solved: Sequence[Solution], slow: float) -> str:
    median = statistics.median(one.seconds for one in solved)
    each = ", ".join(f"{one.seconds:.3g}" if one.found else "not" for one in solved)
    steps = statistics.median(one.steps for one in solved)
    found = sum(one.found for one in solved)
    # Where most seeds failed there is no number to compare.
    ratio = f"{slow / median:.1f}" if math.isfinite(median) and math.isfinite(slow) else "—"
    return f"{title} | {found} of {len(solved)} | {each} | **{median:.3g}** | {steps:,.0f} | {ratio}"


def section() -> str | None:
    """For the page; None where nothing is kept."""
    if not FIGURES.is_file():
        return None
    return f"""## How soon a task is solved

Seconds of training until {EPISODES} greedy episodes reach the goal on average (`benchmarks/solve.py`): the shipped
experiments beside SB3 with the settings that RL Zoo tuned for it, each on one core. Our settings were chosen on
other seeds, 11 to 20 and 11 to 15. With those of RL Zoo ours took 0.6 s and 13 s.

{table(TASKS, range(1, SEEDS + 1), Ledger(FIGURES))}
"""


if __name__ == "__main__":
    main()
