"""Measure the share of the training time that each part of the program takes, for workloads of speed.py.

    python benchmarks/where_time_goes.py [--workloads A,C,D,SAC,DQN]

Each workload is trained on one core with one thread. The profiler py-spy, which must be installed, takes 500 samples
per second; only samples between the start of the first round and the end of the last round count. The shares are stored
in docs/where_time_goes.json, and speed_page.py writes them to docs/speed.md.
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
from peers.workloads import WORKLOADS, Workload

FIGURES = Path(__file__).parent.parent / "docs" / "where_time_goes.json"
SCRIPT = Path(__file__).parent / "peers" / "ours.py"
RATE = 500
"""Samples per second."""
LENGTH = 3
"""Factor by which training is longer than the timed steps in speed.py, so that start-up takes a smaller share."""
ROUNDS = "_run_rounds (rl4sys/training/loop.py)"
REST = "rest of the round"
PARTS = {
    "environments": ("step (gymnasium/", "reset (gymnasium/", "step (rl4sys/environments/families/gym.py)"),
    "episode seeds": ("episode_seed (",),
    "decisions": ("act (rl4sys/policy/",),
    "recording": ("(rl4sys/environments/",),
    "update": ("(rl4sys/algorithms/native/",),
    "update overhead": ("(rl4sys/algorithms/", "(rl4sys/networks/", "(rl4sys/normalization.py)"),
    "buffer": ("(rl4sys/buffers/",),
    "policy for the next round": ("_current_policy (rl4sys/training/loop.py)",),
    "logging and checkpoints": ("(rl4sys/tracking/", "(rl4sys/runs/", "(rl4sys/training/reporting.py)"),
}
"""Substrings of stack frames by part of the program; a sample counts for the first part with a match."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="A,C,D,SAC,DQN")
    options = parser.parse_args()
    chosen = [work for work in WORKLOADS if work.name in options.workloads.split(",")]
    kept = {work.name: shares(sampled_stacks(work)) for work in chosen}
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
    print(table(kept))


def sampled_stacks(work: Workload) -> Iterable[tuple[list[str], int]]:
    """Yield the sampled stacks, outermost frame first, and their counts."""
    profiler = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if profiler is None:
        raise SystemExit("py-spy is not installed: pip install py-spy")
    described = json.dumps({**work.described(1, quick=False), "total": work.warm + LENGTH * work.timed})
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "stacks"
        # py-spy skips idle threads, so nearly all samples are of the training thread.
        profiling = [profiler, "record", "--format", "raw", "--rate", str(RATE), "--output", str(seen)]
        training = [sys.executable, str(SCRIPT), described]
        pinned = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
        settings = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        subprocess.run([*profiling, "--", *pinned, *training], check=True, env=settings, capture_output=True, text=True)
        lines = seen.read_text(encoding="utf-8").splitlines()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        yield stack.split(";"), int(count)


def shares(stacks: Iterable[tuple[list[str], int]]) -> dict[str, float]:
    """Return the share of each part of the program in the time of all rounds."""
    counted: Counter[str] = Counter()
    for stack, count in stacks:
        if any(ROUNDS in short(frame) for frame in stack):
            counted[part_of(stack)] += count
    return {part: round(counted[part] / counted.total(), 4) for part in (*PARTS, REST)}


def short(frame: str) -> str:
    """Shorten a frame to ``function (package/file.py)``, without line number and path prefix."""
    function, _, place = frame.partition(" (")
    file = place.rpartition(":")[0]
    for package in ("/site-packages/", f"{Path(__file__).parents[1]}/"):
        file = file.rpartition(package)[2]
    return f"{function} ({file})"


def part_of(stack: list[str]) -> str:
    frames = [short(frame) for frame in stack]
    for part, texts in PARTS.items():
        if any(text in frame for frame in frames for text in texts):
            return part
    return REST


def table(kept: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"| | {' | '.join(kept)} |", "|---" * (len(kept) + 1) + "|"]
    for part in (*PARTS, REST):
        lines.append(f"| {part} | {' | '.join(f'{of_work[part]:.1%}' for of_work in kept.values())} |")
    limits = (1 / of_work["environments"] for of_work in kept.values())
    lines.append(f"| **speedup if only environments took time** | {' | '.join(f'{x:.1f}' for x in limits)} |")
    return "\n".join(lines)


def section() -> str | None:
    """Return the section "Profile" of docs/speed.md, or None without stored results."""
    if not FIGURES.is_file():
        return None
    return f"""## Profile

Share of the training time that each part of the program takes in some of the workloads above. An external profiler took
{RATE} samples per second (`benchmarks/where_time_goes.py`).

{table(json.loads(FIGURES.read_text()))}
"""


if __name__ == "__main__":
    main()
