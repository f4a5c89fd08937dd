"""Compare the learning results of RL4Sys (native core and torch) and SB3: PPO with identical settings and many seeds.

    python benchmarks/same_learning.py [--tasks cartpole,lunarlander] [--seeds 10] [--jobs 1] [--again]

The final greedy policy of each run is evaluated on the same 50 episodes, and a rank test compares the returns. Results
are stored in docs/same_learning.json by task, implementation and seed, so an interrupted benchmark continues with the
missing runs. Nothing is timed, so several runs can be trained in parallel (--jobs).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.results_file import ResultsFile
from peers.runner import Library

FIGURES = Path(__file__).parent.parent / "docs" / "same_learning.json"
EPISODES, SEEDS = 50, 10
ARMS = {"native": "RL4Sys, native core", "torch": "RL4Sys, torch", "sb3": "SB3"}
EPOCHS, MINIBATCH, RATE, CLIP, MAX_GRAD_NORM = 10, 64, 3e-4, 0.2, 0.5
VALUE_COEF = 0.5
"""Value loss coefficient of SB3, for the mean squared error. RL4Sys uses half the error and twice the coefficient."""


@dataclass(frozen=True)
class Task:
    name: str
    environment: str
    total: int
    num_envs: int
    length: int
    """Steps per environment in a rollout."""
    gamma: float
    gae_lambda: float
    entropy_coef: float

    def library(self, arm: str) -> Library:
        if arm == "sb3":
            overrides = {"num_envs": self.num_envs, "options": self._sb3_options()}
            return Library(arm, ARMS[arm], "learn_sb3", "sb3", overrides, pinned=False)
        return Library(arm, ARMS[arm], "learn_ours", overrides={"settings": self._settings(arm)}, pinned=False)

    def work(self, seed: int) -> dict[str, Any]:
        return {"environment": self.environment, "total": self.total, "seed": seed, "episodes": EPISODES}

    def _sb3_options(self) -> dict[str, Any]:
        """Return the settings of SB3. All other settings, such as Adam's epsilon, have the same values in RL4Sys."""
        return {
            "learning_rate": RATE,
            "n_steps": self.length,
            "batch_size": MINIBATCH,
            "n_epochs": EPOCHS,
            "gamma": self.gamma,
            "gae_lambda": self.gae_lambda,
            "clip_range": CLIP,
            "ent_coef": self.entropy_coef,
            "vf_coef": VALUE_COEF,
            "max_grad_norm": MAX_GRAD_NORM,
            "policy_kwargs": {"net_arch": [64, 64]},
        }

    def _settings(self, backend: str) -> dict[str, Any]:
        network = {"hidden_dims": [64, 64], "activation": "tanh", "initialization": "orthogonal"}
        return {
            "experiment": {"name": f"same_{self.name}", "backend": backend},
            "algorithm": {
                "name": "ppo",
                "lr": RATE,
                "minibatch_size": MINIBATCH,
                "epochs": EPOCHS,
                "gamma": self.gamma,
                "gae_lambda": self.gae_lambda,
                "clip_ratio": CLIP,
                "entropy_coef": self.entropy_coef,
                "value_coef": 2 * VALUE_COEF,
                "max_grad_norm": MAX_GRAD_NORM,
                "normalize_advantage": True,
            },
            "environment": {"name": self.environment, "num_envs": self.num_envs},
            "network": {"actor": network, "critic": network},
            "buffer": {"size": self.num_envs * self.length},
        }


TASKS = (
    Task("cartpole", "CartPole-v1", 51_200, 8, 256, gamma=0.99, gae_lambda=0.95, entropy_coef=0.0),
    Task("lunarlander", "LunarLander-v3", 303_104, 16, 512, gamma=0.999, gae_lambda=0.98, entropy_coef=0.01),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(task.name for task in TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    parser.add_argument("--again", "--anew", action="store_true", help="discard stored results and measure again")
    options = parser.parse_args()
    stored, seeds = ResultsFile(FIGURES, fresh=options.again), range(1, options.seeds + 1)
    tasks = [task for task in TASKS if task.name in options.tasks.split(",")]
    fill(tasks, seeds, stored, options.jobs)
    print(table(tasks, seeds, stored))


def fill(tasks: Sequence[Task], seeds: Sequence[int], stored: ResultsFile, jobs: int) -> None:
    """Train and evaluate all runs without a stored result."""
    missing = [
        (task, arm, seed)
        for task in tasks
        for seed in seeds
        for arm in ARMS
        if (task.name, arm, str(seed)) not in stored
    ]
    for task, arm, _ in missing:
        task.library(arm).prepare()
    with ThreadPoolExecutor(jobs) as pool:
        futures = {
            pool.submit(task.library(arm).run, task.work(seed)): (task, arm, seed) for task, arm, seed in missing
        }
        try:
            for done in as_completed(futures):
                store(*futures[done], done.result(), stored)
        except BaseException:
            # Otherwise an interrupt would wait for all queued runs.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def store(task: Task, arm: str, seed: int, outcome: dict[str, Any], stored: ResultsFile) -> None:
    stored.put((task.name, arm, str(seed)), outcome)
    mean = statistics.fmean(outcome["returns"])
    print(f"{task.name}, seed {seed}: {ARMS[arm]} {mean:.1f}", file=sys.stderr, flush=True)


def table(tasks: Sequence[Task], seeds: Sequence[int], stored: ResultsFile) -> str:
    lines = [
        "| task | | median | mean | quartiles | p, compared with the native core |",
        "|---|---|---|---|---|---|",
    ]
    for task in tasks:
        means = {
            arm: [statistics.fmean(stored[task.name, arm, str(seed)]["returns"]) for seed in seeds] for arm in ARMS
        }
        for arm, of_arm in means.items():
            p = "" if arm == "native" else f"{mann_whitney(means['native'], of_arm):.2f}"
            lines.append(f"| {task.environment}, {task.total:,} steps | {ARMS[arm]} | {summary(of_arm)} | {p} |")
    return "\n".join(lines)


def summary(means: Sequence[float]) -> str:
    quarters = statistics.quantiles(means, n=4, method="inclusive") if len(means) > 1 else [means[0]] * 3
    return f"{statistics.median(means):.1f} | {statistics.fmean(means):.1f} | {quarters[0]:.1f} to {quarters[2]:.1f}"


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Whitney U test (normal approximation, tie and continuity correction)."""
    together = [*first, *second]
    m, n, count = len(first), len(second), len(together)
    ranks = sum(rank_of(value, together) for value in first)
    ties = sum(together.count(value) ** 3 - together.count(value) for value in set(together))
    variance = m * n / 12 * (count + 1 - ties / (count * (count - 1)))
    if variance == 0:
        return 1.0
    off = abs(ranks - m * (m + 1) / 2 - m * n / 2)
    return math.erfc(max(off - 0.5, 0.0) / math.sqrt(2 * variance))


def rank_of(value: float, among: Sequence[float]) -> float:
    """Return the rank of a value, counted from 1; equal values share their mean rank."""
    below = sum(other < value for other in among)
    return below + (among.count(value) + 1) / 2


def section() -> str | None:
    """Return the section "Equality of learning results" of docs/speed.md, or None without stored results."""
    if not FIGURES.is_file():
        return None
    return f"""## Equality of learning results

Returns of PPO with identical settings in RL4Sys (native core and torch) and SB3. Each is trained with {SEEDS} seeds,
and the greedy policy is evaluated over {EPISODES} episodes (`benchmarks/same_learning.py`). p is the two-sided p-value
of a Mann-Whitney test; above 0.05, the returns do not differ significantly from those of the native core.

{table(TASKS, range(1, SEEDS + 1), ResultsFile(FIGURES))}
"""


if __name__ == "__main__":
    main()
