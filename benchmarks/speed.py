"""Compare the training speed with other libraries (peers): environment steps per second, including updates.

    python benchmarks/speed.py [--workloads A,B,...] [--peers sb3,sbx,...] [--repeats 3] [--quick] [--install-only]

Each peer has its own virtual environment under build/peers, which is created on first use. In each round, RL4Sys and
all peers train the same workload, in rotating order; ratios are computed within a round. Results are stored in
docs/speed.json by workload and library, and speed_page.py writes docs/speed.md from them. --quick (about five minutes)
measures fewer and shorter workloads, prints the table and stores nothing.
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

from peers.runner import OURS, SB3, Library, Machine, PeerFailedError
from peers.workloads import FEW, WORKLOADS, Workload

FIGURES = Path(__file__).parent.parent / "docs" / "speed.json"

ENVPOOL: dict[str, Any] = {"environment_more": {"vectorized": "envpool"}}
PIPELINE: dict[str, Any] = {"training_more": {"pipeline": True}}
SBX = Library("sbx", "SBX", "sb3", "sbx")
LIBRARIES = (
    OURS,
    SB3,
    SBX,
    Library("cleanrl", "CleanRL", "cleanrl", "cleanrl"),
    Library("rllib", "RLlib", "rllib", "rllib"),
    Library("torchrl", "TorchRL", "torchrl_ppo", "torchrl"),
    replace(OURS, name="envpool", title="RL4Sys, envpool", overrides=ENVPOOL),
    replace(OURS, name="envpool_two", title="RL4Sys, envpool, two cores", overrides=ENVPOOL, pinned=False),
    replace(OURS, name="pipeline", title="RL4Sys, pipeline, two cores", overrides=PIPELINE, pinned=False),
    replace(OURS, name="both", title="RL4Sys, both, two cores", overrides=ENVPOOL | PIPELINE, pinned=False),
    replace(SB3, name="sb3_two", title="SB3, two cores", pinned=False),
    replace(SBX, name="sbx_two", title="SBX, two cores", pinned=False),
)


@dataclass(frozen=True)
class Figures:
    """Results of one library for one workload: one value per round."""

    rates: list[float]
    """Steps per second."""
    yardstick: list[float]
    """Steps per second of SB3 in the same rounds."""
    peak_megabytes: float
    versions: dict[str, str]
    machine: Machine

    @property
    def ratios(self) -> list[float]:
        return [rate / base for rate, base in zip(self.rates, self.yardstick, strict=True)]


Kept = dict[str, dict[str, Figures]]
"""Results by workload, then by library."""


def main() -> None:
    options = parse_options()
    works = [work for work in WORKLOADS if work.name in options.workloads]
    libraries = [one for one in LIBRARIES if one.name in options.peers]
    for library in libraries:
        library.prepare()
    if options.install_only:
        return
    kept: Kept = {} if options.quick else read_figures()
    failed = make_figures(works, libraries, options, kept)
    print(table(kept))
    if failed:
        raise SystemExit(f"failed and omitted: {', '.join(sorted(failed))}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=names_of(WORKLOADS), help="workloads by name; default: all")
    parser.add_argument("--peers", type=names_of(LIBRARIES), help="peers in addition to RL4Sys and SB3; default: all")
    parser.add_argument("--repeats", type=int, help="number of rounds; default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="run fewer and shorter workloads; store nothing")
    parser.add_argument("--install-only", action="store_true", help="only create the virtual environments of the peers")
    options = parser.parse_args()
    usual = [work.name for work in WORKLOADS if not options.quick or work.quick is not None]
    options.workloads = options.workloads or usual
    chosen = options.peers or (FEW if options.quick else [one.name for one in LIBRARIES])
    options.peers = {"ours", "sb3", *chosen}
    options.repeats = options.repeats or (1 if options.quick else 3)
    return options


def names_of(known: Iterable[Workload | Library]) -> Any:
    """Return an argparse type for comma-separated names."""
    names = [one.name for one in known]

    def read(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(names)}")
        return text.split(",")

    return read


def make_figures(
    works: Sequence[Workload], libraries: Sequence[Library], options: argparse.Namespace, kept: Kept
) -> set[str]:
    """Measure all workloads and add the results to ``kept``. Return the names of failed libraries with the workload."""
    failed: set[str] = set()
    for work in works:
        doing = [one for one in libraries if one.name in work.libraries]
        figures, failing = measure(work, doing, options.repeats, quick=options.quick)
        kept.setdefault(work.name, {}).update(figures)
        failed |= {f"{name} at {work.name}" for name in failing}
        if not options.quick:
            write_figures(kept)
    return failed


def measure(
    work: Workload, libraries: Sequence[Library], repeats: int, *, quick: bool
) -> tuple[dict[str, Figures], set[str]]:
    """Measure a workload in several rounds. Return the results by library, and the names of failed libraries."""
    machine, turns = Machine.here(), []
    failed: set[str] = set()
    for repeat in range(repeats):
        first = repeat % len(libraries)
        order = [one for one in (*libraries[first:], *libraries[:first]) if one.name not in failed]
        turns.append(take_turn(work, order, work.described(repeat + 1, quick=quick), failed))
    figures = {
        one.name: figures_of(one.name, turns, machine)
        for one in libraries
        if all({one.name, SB3.name} <= turn.keys() for turn in turns)
    }
    return figures, failed


def take_turn(
    work: Workload, libraries: Sequence[Library], described: dict[str, Any], failed: set[str]
) -> dict[str, dict[str, Any]]:
    """Train a workload with each library and return the results. A failed library is logged and added to ``failed``."""
    turn = {}
    for library in libraries:
        try:
            turn[library.name] = library.run(described)
        except PeerFailedError as problem:
            failed.add(library.name)
            log(f"{work.name}: failed and omitted: {problem}")
            continue
        done = turn[library.name]
        log(f"{work.name}: {library.title} {done['steps_per_second']:,.0f} steps/s in {done['seconds']:.1f} s")
    return turn


def log(text: str) -> None:
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


def results(kept: Kept) -> Iterable[tuple[Workload, list[tuple[Library, Figures]]]]:
    """Yield the stored results in the order of ``WORKLOADS`` and ``LIBRARIES``."""
    for work in WORKLOADS:
        of_work = kept.get(work.name, {})
        yield work, [(one, of_work[one.name]) for one in LIBRARIES if one.name in of_work]


def table(kept: Kept) -> str:
    lines = [
        "| workload | | steps/s | min – max | ratio to SB3 | min – max | RAM |",
        "|---|---|---|---|---|---|---|",
    ]
    for work, of_work in results(kept):
        for number, (library, figures) in enumerate(of_work):
            title = f"**{work.name}** {work.title}" if number == 0 else ""
            lines.append(f"| {title} | {library.title} | {cells(figures)} |")
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
