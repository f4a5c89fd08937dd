"""Speed of training beside peers: environment steps per second, updates included. Writes docs/speed.md.

    python benchmarks/speed.py [--works A,B,...] [--peers sb3,sbx,...] [--repeats 3] [--quick] [--install-only] [--page]

Each peer gets an environment of its own under build/peers, made when it is missing. All do the same work one after
the other, again and again, each time in another order, and are compared within one such turn. Figures are kept in
docs/speed.json for each work and each that did it, so that they can be made one at a time. --quick (about five
minutes) runs fewer and shorter works, prints the table and writes nothing; --page writes the page from what is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from peers.runner import OURS, SB3, Entrant, Machine, PeerFailedError

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "speed.json"
NOTES = Path(__file__).parent / "speed_notes.md"
"""What is said on the page beside the figures."""

SBX = Entrant("sbx", "SBX", "sb3", "sbx")
ENTRANTS = (
    OURS,
    SB3,
    SBX,
    Entrant("cleanrl", "CleanRL", "cleanrl", "cleanrl"),
    Entrant("rllib", "RLlib", "rllib", "rllib"),
    Entrant("torchrl", "TorchRL", "torchrl_ppo", "torchrl"),
    replace(OURS, name="envpool", title="RL4Sys, envpool", changes={"environment_more": {"vectorized": "envpool"}}),
    replace(
        OURS,
        name="pipeline",
        title="RL4Sys, pipeline, two cores",
        changes={"training_more": {"pipeline": True}},
        pinned=False,
    ),
    replace(SB3, name="sb3_two", title="SB3, two cores", pinned=False),
    replace(SBX, name="sbx_two", title="SBX, two cores", pinned=False),
)
# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#999999", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#BBBBBB", "#F5C56B")


@dataclass(frozen=True)
class Work:
    """What all do; steps are those of environments, over all copies."""

    name: str
    title: str
    entrants: tuple[str, ...]
    settings: dict[str, Any] = field(hash=False)
    warm: int
    """Steps before the clock starts."""
    timed: int
    quick: int | None = None
    """Steps timed with --quick; None if it is no part of that."""

    def described(self, seed: int, *, quick: bool) -> dict[str, Any]:
        timed = self.quick if quick and self.quick is not None else self.timed
        return {**self.settings, "seed": seed, "warm": self.warm, "total": self.warm + timed}


def ppo(environment: str, num_envs: int, length: int, epochs: int, minibatch: int) -> dict[str, Any]:
    shape = {"num_envs": num_envs, "length": length, "epochs": epochs, "minibatch": minibatch}
    return {"algorithm": "ppo", "environment": environment, "hidden": [64, 64], **shape}


def off_policy(algorithm: str, environment: str, **options: int) -> dict[str, Any]:
    usual = {"batch_size": 256, "learning_starts": 100, "train_frequency": 1, "gradient_steps": 1}
    shared = {"num_envs": 1, "hidden": [256, 256], "buffer_size": 100_000}
    return {"algorithm": algorithm, "environment": environment, **shared, **usual, **options}


FEW, MORE = ("ours", "sb3", "sbx"), ("ours", "sb3", "sbx", "cleanrl")
ALL = (*MORE, "rllib", "torchrl")
LANDER, CARTPOLE, PENDULUM = "LunarLander-v3", "CartPole-v1", "Pendulum-v1"
OFTEN_COPIED = {"learning_starts": 1000, "target_update_interval": 256}
WORKS = (
    Work("A", "PPO, LunarLander-v3, 8 × 128, 10 epochs of 64", ALL, ppo(LANDER, 8, 128, 10, 64), 2048, 15360, 8192),
    Work("B", "PPO, LunarLander-v3, 8 × 128, 4 epochs of 256", MORE, ppo(LANDER, 8, 128, 4, 256), 2048, 40960),
    Work(
        "C",
        "PPO, LunarLander-v3, 16 × 1024, 4 epochs of 64",
        (*MORE, "envpool", "pipeline", "sb3_two", "sbx_two"),
        ppo(LANDER, 16, 1024, 4, 64),
        16384,
        49152,
        32768,
    ),
    Work("D", "PPO, CartPole-v1, 8 × 128, 10 epochs of 64", ALL, ppo(CARTPOLE, 8, 128, 10, 64), 2048, 15360, 8192),
    Work("SAC", "SAC, Pendulum-v1, 256 × 256, batch 256", FEW, off_policy("sac", PENDULUM), 500, 1500, 1000),
    Work("TD3", "TD3, Pendulum-v1, 256 × 256, batch 256", FEW, off_policy("td3", PENDULUM), 300, 1200),
    Work(
        "DQN",
        "DQN, CartPole-v1, batch 64, 128 updates every 256 steps",
        FEW,
        off_policy("dqn", CARTPOLE, batch_size=64, train_frequency=256, gradient_steps=128, **OFTEN_COPIED),
        2048,
        7680,
        4096,
    ),
    Work(
        "DQN-lander",
        "DQN, LunarLander-v3, batch 128, 4 updates every 4 steps",
        FEW,
        off_policy("dqn", LANDER, batch_size=128, train_frequency=4, gradient_steps=4, **OFTEN_COPIED),
        1500,
        3000,
    ),
)


@dataclass(frozen=True)
class Figures:
    """What one entrant came to at one work: a number for each turn."""

    rates: list[float]
    """Steps per second."""
    yardstick: list[float]
    """Those of SB3 in the same turns."""
    peak_megabytes: float
    versions: dict[str, str]
    machine: Machine

    @property
    def ratios(self) -> list[float]:
        return [rate / base for rate, base in zip(self.rates, self.yardstick, strict=True)]


Kept = dict[str, dict[str, Figures]]
"""By work, then by entrant."""


def main() -> None:
    options = parse_options()
    works = [work for work in WORKS if work.name in options.works]
    entrants = [one for one in ENTRANTS if one.name in options.peers]
    if not options.page:
        for entrant in entrants:
            entrant.prepare()
    if options.install_only:
        return
    kept: Kept = {} if options.quick else read_figures()
    failed = set() if options.page else make_figures(works, entrants, options, kept)
    print(table(kept))
    if not options.quick:
        plot(kept, DOCS / "images" / "speed.png")
        (DOCS / "speed.md").write_text(page(kept), encoding="utf-8")
    if failed:
        raise SystemExit(f"left out, since they failed: {', '.join(sorted(failed))}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", type=names_of(WORKS), help="by their short names; default: all")
    parser.add_argument("--peers", type=names_of(ENTRANTS), help="who does them, besides us and SB3; default: all")
    parser.add_argument("--repeats", type=int, help="turns; default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter works; writes nothing")
    parser.add_argument("--install-only", action="store_true", help="make the environments of the peers, and no more")
    parser.add_argument("--page", action="store_true", help="write the page from the figures that are kept")
    options = parser.parse_args()
    usual = [work.name for work in WORKS if not options.quick or work.quick is not None]
    options.works = options.works or usual
    chosen = options.peers or (FEW if options.quick else [one.name for one in ENTRANTS])
    options.peers = {"ours", "sb3", *chosen}
    options.repeats = options.repeats or (1 if options.quick else 3)
    return options


def names_of(known: Iterable[Work | Entrant]) -> Any:
    """A reader of lists of names."""
    names = [one.name for one in known]

    def read(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(names)}")
        return text.split(",")

    return read


def make_figures(
    works: Sequence[Work], entrants: Sequence[Entrant], options: argparse.Namespace, kept: Kept
) -> set[str]:
    """Adds to what is kept; gives who failed at what."""
    failed: set[str] = set()
    for work in works:
        doing = [one for one in entrants if one.name in work.entrants]
        figures, failing = measure(work, doing, options.repeats, quick=options.quick)
        kept.setdefault(work.name, {}).update(figures)
        failed |= {f"{name} at {work.name}" for name in failing}
        if not options.quick:
            write_figures(kept)
    return failed


def measure(
    work: Work, entrants: Sequence[Entrant], repeats: int, *, quick: bool
) -> tuple[dict[str, Figures], set[str]]:
    """Turns in which all do the work, the first of each turn the second of the one before; and who failed."""
    machine, turns = Machine.here(), []
    failed: set[str] = set()
    for repeat in range(repeats):
        first = repeat % len(entrants)
        order = [one for one in (*entrants[first:], *entrants[:first]) if one.name not in failed]
        turns.append(take_turn(work, order, work.described(repeat + 1, quick=quick), failed))
    figures = {
        one.name: figures_of(one.name, turns, machine)
        for one in entrants
        if all({one.name, SB3.name} <= turn.keys() for turn in turns)
    }
    return figures, failed


def take_turn(
    work: Work, entrants: Sequence[Entrant], described: dict[str, Any], failed: set[str]
) -> dict[str, dict[str, Any]]:
    """What each handed over. One that fails is told of, noted in ``failed`` and left out."""
    turn = {}
    for entrant in entrants:
        try:
            turn[entrant.name] = entrant.run(described)
        except PeerFailedError as problem:
            failed.add(entrant.name)
            tell(f"{work.name}: left out, since it failed: {problem}")
            continue
        done = turn[entrant.name]
        tell(f"{work.name}: {entrant.title} {done['steps_per_second']:,.0f} steps/s in {done['seconds']:.1f} s")
    return turn


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def figures_of(name: str, turns: Sequence[dict[str, dict[str, Any]]], machine: Machine) -> Figures:
    rates, yardstick = ([round(turn[one]["steps_per_second"], 1) for turn in turns] for one in (name, SB3.name))
    peak = max(turn[name]["peak_megabytes"] for turn in turns)
    return Figures(rates, yardstick, round(peak), turns[0][name]["versions"], machine)


def read_figures() -> Kept:
    if not FIGURES.is_file():
        return {}
    kept = json.loads(FIGURES.read_text())
    return {work: {name: read_one(one) for name, one in of_work.items()} for work, of_work in kept.items()}


def read_one(kept: dict[str, Any]) -> Figures:
    return Figures(**{**kept, "machine": Machine(**kept["machine"])})


def write_figures(kept: Kept) -> None:
    plain = {work: {name: asdict(one) for name, one in of_work.items()} for work, of_work in kept.items()}
    FIGURES.write_text(json.dumps(plain, indent=1) + "\n")


def results(kept: Kept) -> Iterable[tuple[Work, list[tuple[Entrant, Figures]]]]:
    """What is kept, in the order of the lists above."""
    for work in WORKS:
        of_work = kept.get(work.name, {})
        yield work, [(one, of_work[one.name]) for one in ENTRANTS if one.name in of_work]


def table(kept: Kept) -> str:
    lines = [
        "| work | | steps/s | least to most | times SB3 | least to most | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for work, of_work in results(kept):
        for number, (entrant, figures) in enumerate(of_work):
            title = f"**{work.name}** {work.title}" if number == 0 else ""
            lines.append(f"| {title} | {entrant.title} | {cells(figures)} |")
    return "\n".join(lines)


def cells(figures: Figures) -> str:
    rates, ratios = figures.rates, figures.ratios
    return (
        f"{statistics.median(rates):,.0f} | {min(rates):,.0f} – {max(rates):,.0f} "
        f"| **{statistics.median(ratios):.2f}** | {min(ratios):.2f} – {max(ratios):.2f} "
        f"| {figures.peak_megabytes:.0f} MB"
    )


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
    return f"""# How fast it trains

Written by `python benchmarks/speed.py` (`make bench`; `make bench-quick` takes five minutes and writes nothing).
Environment steps per second, updates included, beside Stable-Baselines3, SBX (the same in JAX), CleanRL's loop, RLlib
and TorchRL. Medians of {turns_of(every)} turns; ratios are to SB3 within one turn.

![Speed](images/speed.png)

{table(kept)}

Made with {", ".join(versions)}, on:

{chr(10).join(f"- {machine}" for machine in machines)}

{NOTES.read_text(encoding="utf-8")}"""


def turns_of(every: Sequence[Figures]) -> str:
    counts = sorted({len(figures.rates) for figures in every})
    return " or ".join(str(count) for count in counts)


if __name__ == "__main__":
    main()
