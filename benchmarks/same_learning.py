"""Do the native core, torch and SB3 learn the same? PPO with one set of settings, many seeds, and a rank test.

    python benchmarks/same_learning.py [--tasks cartpole,lunarlander] [--seeds 10] [--jobs 1] [--anew]

The policy at the end of training is judged acting greedily over 50 episodes, the same for all. Figures are kept in
docs/same_learning.json as they come, by task, arm and seed, so that this can be broken off and taken up again.
Nothing is timed, so several may run at once (--jobs).
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

from peers.ledger import Ledger
from peers.runner import Entrant

FIGURES = Path(__file__).parent.parent / "docs" / "same_learning.json"
EPISODES, SEEDS = 50, 10
ARMS = {"native": "RL4Sys, native core", "torch": "RL4Sys, torch", "sb3": "SB3"}
EPOCHS, MINIBATCH, RATE, CLIP, LONGEST = 10, 64, 3e-4, 0.2, 0.5
VALUE_COEF = 0.5
"""As SB3 means it: of the mean squared error. Ours weighs half of that error, so that it is given twice as much."""


@dataclass(frozen=True)
class Task:
    name: str
    environment: str
    total: int
    num_envs: int
    length: int
    """Steps of each environment in a rollout."""
    gamma: float
    gae_lambda: float
    entropy_coef: float

    def entrant(self, arm: str) -> Entrant:
        if arm == "sb3":
            changes = {"num_envs": self.num_envs, "options": self._options_of_sb3()}
            return Entrant(arm, ARMS[arm], "learn_sb3", "sb3", changes, pinned=False)
        return Entrant(arm, ARMS[arm], "learn_ours", changes={"settings": self._settings(arm)}, pinned=False)

    def work(self, seed: int) -> dict[str, Any]:
        return {"environment": self.environment, "total": self.total, "seed": seed, "episodes": EPISODES}

    def _options_of_sb3(self) -> dict[str, Any]:
        """Adam's epsilon of 1e-5, orthogonal weights and normalised advantages are its defaults, as they are ours."""
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
            "max_grad_norm": LONGEST,
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
                "max_grad_norm": LONGEST,
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
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="how many learn at once")
    parser.add_argument("--anew", action="store_true", help="forget the figures that are kept")
    options = parser.parse_args()
    ledger, seeds = Ledger(FIGURES, anew=options.anew), range(1, options.seeds + 1)
    tasks = [task for task in TASKS if task.name in options.tasks.split(",")]
    fill(tasks, seeds, ledger, options.jobs)
    print(table(tasks, seeds, ledger))


def fill(tasks: Sequence[Task], seeds: Sequence[int], ledger: Ledger, jobs: int) -> None:
    """Makes what is missing."""
    missing = [
        (task, arm, seed)
        for task in tasks
        for seed in seeds
        for arm in ARMS
        if (task.name, arm, str(seed)) not in ledger
    ]
    for task, arm, _ in missing:
        task.entrant(arm).prepare()
    with ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(task.entrant(arm).run, task.work(seed)): (task, arm, seed) for task, arm, seed in missing}
        try:
            for done in as_completed(begun):
                enter(*begun[done], done.result(), ledger)
        except BaseException:
            # Otherwise breaking off would wait for all that has not begun.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def enter(task: Task, arm: str, seed: int, outcome: dict[str, Any], ledger: Ledger) -> None:
    ledger.put((task.name, arm, str(seed)), outcome)
    mean = statistics.fmean(outcome["returns"])
    print(f"{task.name}, seed {seed}: {ARMS[arm]} {mean:.1f}", file=sys.stderr, flush=True)


def table(tasks: Sequence[Task], seeds: Sequence[int], ledger: Ledger) -> str:
    lines = [
        "| task | | median | mean | quartiles | the same as the native core? p |",
        "|---|---|---|---|---|---|",
    ]
    for task in tasks:
        means = {
            arm: [statistics.fmean(ledger[task.name, arm, str(seed)]["returns"]) for seed in seeds] for arm in ARMS
        }
        for arm, of_arm in means.items():
            p = "" if arm == "native" else f"{mann_whitney(means['native'], of_arm):.2f}"
            lines.append(f"| {task.environment}, {task.total:,} steps | {ARMS[arm]} | {summary(of_arm)} | {p} |")
    return "\n".join(lines)


def summary(means: Sequence[float]) -> str:
    quarters = statistics.quantiles(means, n=4, method="inclusive") if len(means) > 1 else [means[0]] * 3
    return f"{statistics.median(means):.1f} | {statistics.fmean(means):.1f} | {quarters[0]:.1f} to {quarters[2]:.1f}"


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney's U test, by the normal approximation with ties and continuity corrected."""
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
    """From 1; equals share the mean of their ranks."""
    below = sum(other < value for other in among)
    return below + (among.count(value) + 1) / 2


def section() -> str | None:
    """For the page; None where nothing is kept."""
    if not FIGURES.is_file():
        return None
    return f"""## The same learning

PPO with one set of settings, {SEEDS} seeds each, judged greedily over {EPISODES} episodes (`same_learning.py`);
p is that of Mann and Whitney's test, two-sided.

{table(TASKS, range(1, SEEDS + 1), Ledger(FIGURES))}
"""


if __name__ == "__main__":
    main()
