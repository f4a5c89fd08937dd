"""Speed of training beside peers: environment steps per second, updates included.

    python benchmarks/speed.py [--works A,B,...] [--peers sb3,sbx,...] [--repeats 3] [--quick] [--install-only]

Each peer gets an environment of its own under build/peers, made when it is missing. All do the same work one after
the other, again and again, each time in another order, and are compared within one such turn. Figures are kept in
docs/speed.json for each work and each that did it, so that they can be made one at a time; speed_page.py writes
docs/speed.md from them. --quick (about five minutes) runs fewer and shorter works, prints the table and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from peers.runner import OURS, SB3, Entrant, Machine, PeerFailedError
from peers.works import FEW, WORKS, Work

FIGURES = Path(__file__).parent.parent / "docs" / "speed.json"

ENVPOOL: dict[str, Any] = {"environment_more": {"vectorized": "envpool"}}
PIPELINE: dict[str, Any] = {"training_more": {"pipeline": True}}
SBX = Entrant("sbx", "SBX", "sb3", "sbx")
ENTRANTS = (
    OURS,
    SB3,
    SBX,
    Entrant("cleanrl", "CleanRL", "cleanrl", "cleanrl"),
    Entrant("rllib", "RLlib", "rllib", "rllib"),
    Entrant("torchrl", "TorchRL", "torchrl_ppo", "torchrl"),
    replace(OURS, name="envpool", title="RL4Sys, envpool", changes=ENVPOOL),
    replace(OURS, name="envpool_two", title="RL4Sys, envpool, two cores", changes=ENVPOOL, pinned=False),
    replace(OURS, name="pipeline", title="RL4Sys, pipeline, two cores", changes=PIPELINE, pinned=False),
    replace(OURS, name="both", title="RL4Sys, both, two cores", changes=ENVPOOL | PIPELINE, pinned=False),
    replace(SB3, name="sb3_two", title="SB3, two cores", pinned=False),
    replace(SBX, name="sbx_two", title="SBX, two cores", pinned=False),
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
    for entrant in entrants:
        entrant.prepare()
    if options.install_only:
        return
    kept: Kept = {} if options.quick else read_figures()
    failed = make_figures(works, entrants, options, kept)
    print(table(kept))
    if failed:
        raise SystemExit(f"left out, since they failed: {', '.join(sorted(failed))}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", type=names_of(WORKS), help="by their short names; default: all")
    parser.add_argument("--peers", type=names_of(ENTRANTS), help="who does them, besides us and SB3; default: all")
    parser.add_argument("--repeats", type=int, help="turns; default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter works; keeps nothing")
    parser.add_argument("--install-only", action="store_true", help="make the environments of the peers, and no more")
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


if __name__ == "__main__":
    main()
