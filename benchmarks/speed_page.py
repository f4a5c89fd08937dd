"""Write docs/speed.md and its plot from the stored results of the speed benchmarks.

    python benchmarks/speed_page.py

These benchmarks store results: speed.py (comparison with other libraries), solve.py (time to solve a task),
same_learning.py (equality of learning results), growth.py (scaling) and where_time_goes.py (profile). The page omits
the section of a benchmark without stored results.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import growth
import matplotlib as mpl
import same_learning
import solve
import where_time_goes

mpl.use("agg")
import matplotlib.pyplot as plt
from peers.runner import Library
from speed import LIBRARIES, Figures, Kept, read_figures, results, table

DOCS = Path(__file__).parent.parent / "docs"
NOTES = Path(__file__).parent / "speed_notes.md"
"""Markdown file with the text that follows the tables."""
# Colors of Okabe and Ito, safe for color-blind readers.
PEERS = ("#999999", "#E69F00", "#009E73", "#CC79A7", "#D55E00")
COLORS = ("#0072B2", *PEERS, "#56B4E9", "#56B4E9", "#56B4E9", "#56B4E9", "#BBBBBB", "#F5C56B")


def main() -> None:
    kept = read_figures()
    plot(kept, DOCS / "images" / "speed.png")
    (DOCS / "speed.md").write_text(page(kept), encoding="utf-8")


def plot(kept: Kept, path: Path) -> None:
    """Draw a group of bars per workload: speed relative to SB3."""
    shown = [(work, of_work) for work, of_work in results(kept) if of_work]
    figure, axes = plt.subplots(figsize=(11, 0.7 + 0.32 * sum(len(of_work) + 1 for _, of_work in shown)))
    colors = {one.name: color for one, color in zip(LIBRARIES, COLORS, strict=True)}
    place, ticks = 0.0, []
    for work, of_work in shown:
        ticks.append((place - 0.9, work.title))
        for library, figures in of_work:
            draw_bar(place, library, figures, colors[library.name])
            place += 1
        place += 1.4
    axes.axvline(1, color="0.3", linewidth=1, linestyle="--", zorder=0)
    for at, title in ticks:
        axes.text(0, at, f" {title}", fontweight="bold", fontsize=9, va="center", backgroundcolor="white")
    axes.set(yticks=[], xlabel="steps per second relative to Stable-Baselines3 in the same round")
    axes.set_ylim(place - 1, -1.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_bar(place: float, library: Library, figures: Figures, color: str) -> None:
    """Draw the median as a bar, with a line from minimum to maximum."""
    ratios = figures.ratios
    middle = statistics.median(ratios)
    plt.barh(place, middle, color=color, height=0.85)
    plt.hlines(place, min(ratios), max(ratios), color="black", linewidth=1)
    plt.text(max(1.0, *ratios), place, f"  {library.title}  {middle:.1f}×", va="center", fontsize=8)


def page(kept: Kept) -> str:
    every = [figures for _, of_work in results(kept) for _, figures in of_work]
    machines = sorted({str(figures.machine) for figures in every})
    versions = sorted({f"{name} {version}" for figures in every for name, version in figures.versions.items()})
    others = (solve.section(), same_learning.section(), growth.section(), where_time_goes.section())
    return f"""# Training speed

On this page you can compare the training speed of RL4Sys with Stable-Baselines3 (SB3), SBX (SB3 in JAX), CleanRL, RLlib
and TorchRL, and see what limits it.

    make bench          # measure everything and write this page
    make bench-quick    # measure fewer and shorter workloads in five minutes; write nothing

The table has the number of environment steps per second, including updates, as the median of {turns_of(every)} rounds.
The ratio to SB3 is computed within each round. A workload such as *8 × 128, 10 epochs of 64* has 8 environments with
128 steps per rollout, and 10 epochs with minibatches of 64 steps.

![Speed](images/speed.png)

{table(kept)}

Measured with {", ".join(versions)}, on:

{chr(10).join(f"- {machine}" for machine in machines)}

{chr(10).join(section for section in others if section)}
{NOTES.read_text(encoding="utf-8")}"""


def turns_of(every: Sequence[Figures]) -> str:
    counts = sorted({len(figures.rates) for figures in every})
    return " or ".join(str(count) for count in counts)


if __name__ == "__main__":
    main()
