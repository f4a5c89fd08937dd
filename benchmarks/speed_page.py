"""Writes docs/speed.md, and its picture, from the figures that the benchmarks of speed have kept.

    python benchmarks/speed_page.py

What has not been measured is left out: speed.py (beside peers), solve.py (how soon tasks are solved), same_learning.py
(whether all learn the same), growth.py (with environments and width), where_time_goes.py (a profile).
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
from peers.runner import Entrant
from speed import ENTRANTS, Figures, Kept, read_figures, results, table

DOCS = Path(__file__).parent.parent / "docs"
NOTES = Path(__file__).parent / "speed_notes.md"
"""What is said on the page beside the figures."""
# Okabe and Ito's colours, which the colour-blind can tell apart.
PEERS = ("#999999", "#E69F00", "#009E73", "#CC79A7", "#D55E00")
COLOURS = ("#0072B2", *PEERS, "#56B4E9", "#56B4E9", "#56B4E9", "#56B4E9", "#BBBBBB", "#F5C56B")


def main() -> None:
    kept = read_figures()
    plot(kept, DOCS / "images" / "speed.png")
    (DOCS / "speed.md").write_text(page(kept), encoding="utf-8")


def plot(kept: Kept, path: Path) -> None:
    """For each work a group of bars: how many times as fast as SB3."""
    shown = [(work, of_work) for work, of_work in results(kept) if of_work]
    figure, axes = plt.subplots(figsize=(11, 0.7 + 0.32 * sum(len(of_work) + 1 for _, of_work in shown)))
    colours = {one.name: colour for one, colour in zip(ENTRANTS, COLOURS, strict=True)}
    place, ticks = 0.0, []
    for work, of_work in shown:
        ticks.append((place - 0.9, work.title))
        for entrant, figures in of_work:
            draw_bar(place, entrant, figures, colours[entrant.name])
            place += 1
        place += 1.4
    axes.axvline(1, color="0.3", linewidth=1, linestyle="--", zorder=0)
    for at, title in ticks:
        axes.text(0, at, f" {title}", fontweight="bold", fontsize=9, va="center", backgroundcolor="white")
    axes.set(yticks=[], xlabel="steps per second, as a multiple of those of Stable-Baselines3 in the same turn")
    axes.set_ylim(place - 1, -1.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_bar(place: float, entrant: Entrant, figures: Figures, colour: str) -> None:
    """The median, with a line from the least to the most."""
    ratios = figures.ratios
    middle = statistics.median(ratios)
    plt.barh(place, middle, color=colour, height=0.85)
    plt.hlines(place, min(ratios), max(ratios), color="black", linewidth=1)
    plt.text(max(1.0, *ratios), place, f"  {entrant.title}  {middle:.1f}×", va="center", fontsize=8)


def page(kept: Kept) -> str:
    every = [figures for _, of_work in results(kept) for _, figures in of_work]
    machines = sorted({str(figures.machine) for figures in every})
    versions = sorted({f"{name} {version}" for figures in every for name, version in figures.versions.items()})
    others = (solve.section(), same_learning.section(), growth.section(), where_time_goes.section())
    return f"""# How fast it trains

Environment steps per second, updates included, beside Stable-Baselines3, SBX (the same in JAX), CleanRL's loop, RLlib
and TorchRL (`make bench`; `make bench-quick` takes five minutes and keeps nothing). Medians of {turns_of(every)} turns;
ratios are to SB3 within one turn.

![Speed](images/speed.png)

{table(kept)}

Made with {", ".join(versions)}, on:

{chr(10).join(f"- {machine}" for machine in machines)}

{chr(10).join(section for section in others if section)}
{NOTES.read_text(encoding="utf-8")}"""


def turns_of(every: Sequence[Figures]) -> str:
    counts = sorted({len(figures.rates) for figures in every})
    return " or ".join(str(count) for count in counts)


if __name__ == "__main__":
    main()
