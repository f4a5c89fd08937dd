"""Where the time of a training goes: a sampling profile of the works of speed.py, by what was being done.

    python benchmarks/where_time_goes.py [--works A,C,D,SAC,DQN]

Each work is trained for a while on one core, with one thread, and looked at from outside 500 times a second by py-spy,
which must be installed. What counts is the time between the beginning of the first round and the end of the last.
Shares are kept in docs/where_time_goes.json; speed_page.py shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from peers.runner import ONE_THREAD
from peers.works import WORKS, Work

FIGURES = Path(__file__).parent.parent / "docs" / "where_time_goes.json"
SCRIPT = Path(__file__).parent / "peers" / "ours.py"
RATE = 500
"""Looks a second."""
LENGTH = 3
"""How many times as long as for speed.py, so that starting up is a small part."""
ROUNDS = "_run_rounds (rl4sys/trainer.py)"
REST = "the rest of a round"
PARTS = {
    "environments": ("step (gymnasium/", "reset (gymnasium/", "step (rl4sys/environments/gym.py)"),
    "episodes' seeds": ("episode_seed (",),
    "deciding": ("act (rl4sys/policy/",),
    "recording": ("(rl4sys/environments/",),
    "the update": ("(rl4sys/algorithms/core_",),
    "around the update": ("(rl4sys/algorithms/", "(rl4sys/networks/", "(rl4sys/normalization.py)"),
    "buffer": ("(rl4sys/buffers/",),
    "policy for the next round": ("_current_policy (rl4sys/trainer.py)",),
    "logging and checkpoints": ("(rl4sys/experiment/",),
}
"""What a sample is counted as: the first part of which one of its frames has one of these."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default="A,C,D,SAC,DQN")
    options = parser.parse_args()
    chosen = [work for work in WORKS if work.name in options.works.split(",")]
    kept = {work.name: shares(looked_at(work)) for work in chosen}
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
    print(table(kept))


def looked_at(work: Work) -> Iterable[tuple[list[str], int]]:
    """The stacks that were seen, outermost frame first, and how often."""
    watcher = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if watcher is None:
        raise SystemExit("py-spy is not installed: pip install py-spy")
    described = json.dumps({**work.described(1, quick=False), "total": work.warm + LENGTH * work.timed})
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "stacks"
        # Threads that wait are not counted; none but the one that trains has anything else to do.
        watching = [watcher, "record", "--format", "raw", "--rate", str(RATE), "--output", str(seen)]
        training = [sys.executable, str(SCRIPT), described]
        pinned = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
        settings = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        subprocess.run([*watching, "--", *pinned, *training], check=True, env=settings, capture_output=True, text=True)
        lines = seen.read_text(encoding="utf-8").splitlines()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        yield stack.split(";"), int(count)


def shares(stacks: Iterable[tuple[list[str], int]]) -> dict[str, float]:
    """Of the time of all rounds, by part."""
    counted: Counter[str] = Counter()
    for stack, count in stacks:
        if any(ROUNDS in short(frame) for frame in stack):
            counted[part_of(stack)] += count
    return {part: round(counted[part] / counted.total(), 4) for part in (*PARTS, REST)}


def short(frame: str) -> str:
    """``function (package/file.py)``: without the line, and without the way to the package."""
    function, _, place = frame.partition(" (")
    file = place.rpartition(":")[0]
    for package in ("/site-packages/", "/src/"):
        file = file.rpartition(package)[2]
    return f"{function} ({file})"


def part_of(stack: list[str]) -> str:
    frames = [short(frame) for frame in stack]
    for part, words in PARTS.items():
        if any(word in frame for frame in frames for word in words):
            return part
    return REST


def table(kept: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"| | {' | '.join(kept)} |", "|---" * (len(kept) + 1) + "|"]
    for part in (*PARTS, REST):
        lines.append(f"| {part} | {' | '.join(f'{of_work[part]:.1%}' for of_work in kept.values())} |")
    limits = (1 / of_work["environments"] for of_work in kept.values())
    lines.append(f"| **times as fast, if only environments took time** | {' | '.join(f'{x:.1f}' for x in limits)} |")
    return "\n".join(lines)


def section() -> str | None:
    """For the page; None where nothing is kept."""
    if not FIGURES.is_file():
        return None
    return f"""## Where the time goes

Seen from outside {RATE} times a second (`benchmarks/where_time_goes.py`), by the works above:

{table(json.loads(FIGURES.read_text()))}
"""


if __name__ == "__main__":
    main()
