"""Measure training speed and RAM by number of environments and network width, for PPO on CartPole-v1.

    python benchmarks/growth.py [--repeats 3] [--quick]

Each combination of both is trained in its own process, on one core with one thread, in several rounds; the median is
reported. Writes docs/growth.json and docs/images/growth.png and prints the table. --quick trains every combination
briefly and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from peers.runner import OURS, Machine

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "growth.json"
LENGTH, EPOCHS, MINIBATCH = 128, 4, 256
USUAL_ENVS, USUAL_WIDTH = 8, 64
TIMED = {64: 60_000, 128: 40_000, 256: 20_000, 512: 10_000}
"""Number of timed steps by network width, chosen for similar durations."""
COLOR = "#0072B2"


@dataclass(frozen=True)
class Point:
    num_envs: int
    width: int

    @property
    def rollout(self) -> int:
        return self.num_envs * LENGTH

    def work(self, seed: int, *, quick: bool) -> dict[str, Any]:
        timed = self.rollout * (2 if quick else max(4, TIMED[self.width] // self.rollout))
        return {
            "algorithm": "ppo",
            "environment": "CartPole-v1",
            "num_envs": self.num_envs,
            "length": LENGTH,
            "epochs": EPOCHS,
            "minibatch": MINIBATCH,
            "hidden": [self.width, self.width],
            "seed": seed,
            "warm": 2 * self.rollout,
            "total": 2 * self.rollout + timed,
        }


@dataclass(frozen=True)
class Growth:
    """Results for one number of environments and one network width, with one value per round."""

    num_envs: int
    width: int
    rates: list[float]
    """Steps per second."""
    megabytes: list[float]
    """Peak RAM of the process."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def memory(self) -> float:
        return statistics.median(self.megabytes)


BY_ENVS = tuple(Point(2**power, USUAL_WIDTH) for power in range(9))
BY_WIDTH = tuple(Point(USUAL_ENVS, width) for width in TIMED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, help="number of rounds; default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="train each combination briefly; write nothing")
    options = parser.parse_args()
    machine = Machine.here()
    points = list(dict.fromkeys((*BY_ENVS, *BY_WIDTH)))
    grown = measure(points, options.repeats or (1 if options.quick else 3), quick=options.quick)
    print(f"{table([grown[point] for point in points])}\n\n{machine}")
    if not options.quick:
        kept = {"machine": asdict(machine), "points": [asdict(growth) for growth in grown.values()]}
        FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
        plot(grown, DOCS / "images" / "growth.png")


def measure(points: Sequence[Point], repeats: int, *, quick: bool) -> dict[Point, Growth]:
    grown = {point: Growth(point.num_envs, point.width, [], []) for point in points}
    for repeat in range(repeats):
        for point in points:
            done = OURS.run(point.work(repeat + 1, quick=quick))
            grown[point].rates.append(round(done["steps_per_second"], 1))
            grown[point].megabytes.append(round(done["peak_megabytes"], 1))
            message = f"{point.num_envs} environments, width {point.width}: {done['steps_per_second']:,.0f} steps/s"
            print(message, file=sys.stderr, flush=True)
    return grown


def table(grown: Sequence[Growth]) -> str:
    lines = ["| environments | network | steps/s | min – max | RAM |", "|---|---|---|---|---|"]
    for one in grown:
        spread = f"{min(one.rates):,.0f} – {max(one.rates):,.0f}"
        shape = f"{one.width} × {one.width}"
        lines.append(f"| {one.num_envs} | {shape} | {one.rate:,.0f} | {spread} | {one.memory:.0f} MB |")
    return "\n".join(lines)


def plot(grown: dict[Point, Growth], path: Path) -> None:
    figure, grid = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex="col", sharey="row")
    titles = (
        f"environments, network of {USUAL_WIDTH} × {USUAL_WIDTH}",
        f"width of the network, {USUAL_ENVS} environments",
    )
    for column, points in enumerate((BY_ENVS, BY_WIDTH)):
        across = [point.width if column else point.num_envs for point in points]
        of_points = [grown[point] for point in points]
        grid[0, column].plot(across, [one.rate for one in of_points], "o-", color=COLOR)
        grid[1, column].plot(across, [one.memory for one in of_points], "o-", color=COLOR)
        grid[1, column].set_xscale("log", base=2)
        grid[1, column].set_xticks(across, [str(value) for value in across])
        grid[1, column].set_xlabel(titles[column])
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    grid[0, 0].set(ylabel="steps per second", ylim=(0, 1.08 * max(one.rate for one in grown.values())))
    grid[1, 0].set(ylabel="peak RAM, MB", ylim=(0, 1.08 * max(one.memory for one in grown.values())))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def section() -> str | None:
    """Return the section "Scaling" of docs/speed.md, or None without stored results."""
    if not FIGURES.is_file():
        return None
    kept = json.loads(FIGURES.read_text())
    return f"""## Scaling

Training speed and peak RAM of the process by number of environments and network width: PPO on CartPole-v1 with rollouts
of {LENGTH} steps per environment and {EPOCHS} epochs of minibatches of {MINIBATCH}, on one core
(`benchmarks/growth.py`).

![Growth](images/growth.png)

{table([Growth(**point) for point in kept["points"]])}
"""


if __name__ == "__main__":
    main()
