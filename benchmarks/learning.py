"""Train and evaluate all algorithms and write docs/results.md.

    python benchmarks/learning.py [NAME ...] [--root experiments/results] [--page]

Each row of the page is a shipped experiment, trained with seeds 1, 2 and 3; completed runs under --root are reused. The
greedy policy is evaluated over 100 episodes, and the median over the seeds is reported. Results are stored in
docs/results.json by row. The script measures the rows given as NAME again or, without names, the rows without a stored
result. With --page it only writes the page from stored results.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
import multigoal

mpl.use("agg")
import matplotlib.pyplot as plt
from runs import ROOT, SEEDS, command, trained

from rl4sys.runs.metrics import read_metrics

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "results.json"
NOTES = Path(__file__).parent / "learning_notes.md"
"""Markdown file with the text that follows the tables."""
# Colors of Okabe and Ito, safe for color-blind readers.
COLORS = ("#0072B2", "#D55E00", "#009E73")


@dataclass(frozen=True)
class Row:
    experiment: str
    title: str
    published: str
    target: float
    fails: bool = False
    """True if the task should be too hard for the experiment, so that the return must stay below the target."""
    changes: tuple[str, ...] = ()
    """Settings that differ from the shipped experiment, as ``key=value``."""
    earlier: tuple[int, float] | None = None
    """Step and target return of an additional result, from an evaluation during training."""

    @property
    def name(self) -> str:
        return "_".join((self.experiment, *self.changes)).replace("=", "_")

    @property
    def arguments(self) -> list[str]:
        return ["train", self.experiment, *self.changes]


ROWS = (
    Row("ppo_cartpole", "PPO, CartPole-v1", "500", 475),
    Row("ppo_lunarlander", "PPO, LunarLander-v3", "242 ± 32", 200),
    Row("ppo_pendulum", "PPO, Pendulum-v1", "−172", -300),
    Row("ppo_dm_cartpole", "PPO, cartpole-balance (dm_control)", "—", 900),
    Row("rpo_pendulum", "RPO, Pendulum-v1", "—", -300),
    Row("a2c_cartpole", "A2C, CartPole-v1", "500", 450),
    Row("trpo_cartpole", "TRPO, CartPole-v1", "500", 475),
    Row("reinforce_cartpole", "REINFORCE, CartPole-v1", "—", 300),
    Row("recurrent_ppo_cartpole", "PPO with a GRU, CartPole-v1 without velocities", "—", 475),
    Row("ppo_hidden_cartpole", "PPO with an MLP, CartPole-v1 without velocities", "—", 200, fails=True),
    Row("dqn_cartpole", "double DQN, 3-step returns, CartPole-v1", "500", 475),
    Row("double_dqn_cartpole", "double DQN, CartPole-v1", "500", 475),
    Row("n_step_dqn_cartpole", "DQN, 3-step returns, CartPole-v1", "500", 475),
    Row("dueling_dqn_cartpole", "dueling DQN, CartPole-v1", "500", 475),
    Row("prioritized_dqn_cartpole", "DQN, prioritized replay, CartPole-v1", "500", 475),
    Row("qr_dqn_cartpole", "QR-DQN, CartPole-v1", "—", 475),
    Row("c51_cartpole", "C51, CartPole-v1", "481 at 500k", 450),
    Row("rainbow_cartpole", "Rainbow, CartPole-v1", "—", 475),
    Row("dqn_lunarlander", "DQN, LunarLander-v3", "154 ± 79", 100),
    Row("her_bitflip", "DQN with HER, 14 bits", "—", -8),
    Row("her_bitflip", "DQN without HER, 14 bits", "—", -13, fails=True, changes=("buffer.type=uniform",)),
    Row("sac_cartpole", "discrete SAC, CartPole-v1", "—", 400),
    Row("sac_pendulum", "SAC, Pendulum-v1", "−157", -200),
    Row("td3_pendulum", "TD3, Pendulum-v1", "−152", -200),
    Row("ddpg_pendulum", "DDPG, Pendulum-v1", "−152", -200),
    Row("sac_halfcheetah", "SAC, HalfCheetah-v5", "4747", 4000, earlier=(30_000, 3000)),
    Row("td3_halfcheetah", "TD3, HalfCheetah-v5", "3891", 3000),
    Row("ppo_pong", "PPO, Pong 64x64", "—", -18),
    Row("bc_cartpole", "BC, CartPole-v1, recorded: 500", "—", 475),
    Row("iql_pendulum", "IQL, Pendulum-v1, recorded: −329", "—", -250),
)


@dataclass(frozen=True)
class Result:
    """Result of one seed."""

    seed: int
    steps: int
    steps_per_second: float
    mean_return: float
    curve: list[tuple[int, float]]
    made_with: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rows to measure again")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--page", action="store_true", help="write the page from stored results")
    options = parser.parse_args()
    results = read_results()
    for row in ROWS:
        if not options.page and (row.name in options.names or (not options.names and row not in results)):
            results[row] = [obtain(row, seed, options.root) for seed in SEEDS]
            write_results(results)
    results = {row: results[row] for row in ROWS if row in results}
    plot(results, DOCS / "images" / "learning.png")
    (DOCS / "results.md").write_text(page(results))
    print(table(results))


def read_results() -> dict[Row, list[Result]]:
    if not FIGURES.is_file():
        return {}
    kept = json.loads(FIGURES.read_text())
    return {row: [Result(**result) for result in kept[row.name]] for row in ROWS if row.name in kept}


def write_results(results: dict[Row, list[Result]]) -> None:
    kept = {row.name: [asdict(result) for result in of_row] for row, of_row in results.items()}
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n")


def obtain(row: Row, seed: int, root: Path) -> Result:
    path = trained(row.arguments, seed, root / row.name)
    evaluated = json.loads(command(["evaluate", str(path), "--episodes", "100", "--json"]))
    status = json.loads((path / "status.json").read_text())
    rows = read_metrics(path / "metrics.jsonl")
    curve = [(r["step"], r["evaluation/return"]) for r in rows if "evaluation/return" in r]
    return Result(seed, status["steps"], status["steps_per_second"], evaluated["mean_return"], curve, made_with(path))


def made_with(path: Path) -> str:
    provenance = json.loads((path / "configs/provenance.json").read_text())
    versions = ", ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    return f"{versions}, Python {provenance['python']}, {provenance['cpus']} CPUs, {platform.machine()}"


def plot(results: dict[Row, list[Result]], path: Path) -> None:
    columns = 3
    lines = -(-len(results) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(12, 2.6 * lines), layout="constrained", squeeze=False)
    for axes in grid.flat[len(results) :]:
        axes.axis("off")
    for axes, (row, of_row) in zip(grid.flat, results.items(), strict=False):
        for result, color in zip(of_row, COLORS, strict=True):
            steps, returns = zip(*result.curve, strict=True)
            axes.plot(steps, returns, color=color, linewidth=1.2, label=f"seed {result.seed}")
        axes.axhline(row.target, color="0.5", linestyle="--", linewidth=1, label="target")
        axes.set_title(row.title, fontsize=10)
        axes.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:,.0f}k")
        axes.grid(alpha=0.3)
    grid.flat[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("environment steps")
    figure.supylabel("return of the evaluations during training")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(results: dict[Row, list[Result]]) -> str:
    lines = [
        "| experiment | published | target | seeds 1, 2, 3 | **median** | steps | steps/s | command |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, of_row in results.items():
        returns = [result.mean_return for result in of_row]
        lines.append(
            f"| {row.title} | {row.published} | {wanted(row)} | {', '.join(f'{r:.1f}' for r in returns)} "
            f"| **{statistics.median(returns):.1f}** | {of_row[0].steps:,} "
            f"| {statistics.median(r.steps_per_second for r in of_row):,.0f} "
            f"| `rl4sys {' '.join(row.arguments)} --seed 1,2,3` |"
        )
    return "\n".join(lines)


def wanted(row: Row) -> str:
    return f"fails: < {row.target:g}" if row.fails else f"≥ {row.target:g}"


def earlier(results: dict[Row, list[Result]]) -> str:
    """Return sentences with the results during training, for rows with `Row.earlier`."""
    lines = []
    for row, of_row in results.items():
        if row.earlier is not None:
            step, target = row.earlier
            returns = [next(value for at, value in result.curve if at >= step) for result in of_row]
            each = ", ".join(f"{value:.0f}" for value in returns)
            median = f"median **{statistics.median(returns):.0f}** (target ≥ {target:g}; 10 episodes each)"
            lines.append(f"{row.title} at {step:,} steps: {each}, {median}.")
    return "".join(f"\n{line}\n" for line in lines)


def page(results: dict[Row, list[Result]]) -> str:
    made = sorted({result.made_with for of_row in results.values() for result in of_row})
    written = NOTES.read_text(encoding="utf-8")
    return f"""# Learning results

On this page you can look up the returns that each algorithm reaches, and the commands to reproduce them. For example:

    rl4sys train ppo_cartpole --seed 1,2,3    # train one experiment of the table
    python benchmarks/learning.py             # train all missing experiments and write this page

The table shows the mean return of the greedy policy over 100 episodes for three seeds, and the median of the seeds. The
column *published* shows a result from the literature, if there is one. The column *target* shows the return that the
median should reach. *fails* marks ablations without a feature that the task needs; their median should stay below the
given return. The returns are exactly reproducible on the same machine with the same versions. The speed depends on the
machine and its load.

{table(results)}
{earlier(results)}
Measured with {"; ".join(made)}; one thread.

The curves show the evaluations during training.

![Curves](images/learning.png)

{multigoal.section()}
{written}"""


if __name__ == "__main__":
    main()
