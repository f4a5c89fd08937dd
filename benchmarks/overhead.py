"""Measure the overhead of logging, index and alerts in training.

    python benchmarks/overhead.py [--steps 99840] [--repeats 3] [--json FILE]

The script uses one core for a few minutes. It trains ppo_cartpole twice: with default logging, and without metrics
rows, status, TensorBoard, index and alert rules. Both runs learn bit-identical weights. There are three measurements:

- Time (`cpu`, `wall`): the two runs alternate within one process. Each run has a thread, and only one of the two
  threads runs at a time, for a few training rounds. The CPU time of background threads (TensorBoard) is added to the
  run with logging.
- CPU time in the functions for logging (`cpu, counted`): it does not include effects on the caches of the processor,
  but is more reliable on a shared machine.
- RAM (`memory`): each run is trained in a separate process, in alternating order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.config import load, override
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress

ROUNDS = 13
"""Number of training rounds (of 256 steps) per turn of a run. Equal turns of both runs contain the same work."""
ARMS = ("none", "all")
OFF = ("logging.tensorboard=false", "alerts.enabled=false")


class NoLogbook:
    """Logbook that discards everything."""

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        yield

    def add_experience(self, trajectories: Any) -> None: ...

    def add(self, metrics: Mapping[str, float]) -> None: ...

    def write(self, step: int, row: Mapping[str, float]) -> None: ...

    def write_means(self, step: int, more: Mapping[str, float]) -> Mapping[str, float]:
        return more

    def state(self) -> dict[str, Any]:
        return {}


@dataclass
class Turns:
    """Observer that pauses a training loop after `ROUNDS` rounds, so that two loops can take turns."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._rounds = 0
        self.finished = False

    def note(self, message: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        self._rounds += 1
        if self._rounds % ROUNDS == 0:
            self._end_turn()
            self._begin_turn()

    def run(self, loop: TrainingLoop) -> None:
        self._begin_turn()
        loop.train()
        self.finished = True
        self._end_turn()
        # Work after the last round, such as closing files, belongs to the turn of that round.
        for spent in (self.cpu, self.wall):
            spent[-2:] = [sum(spent[-2:])]

    def take(self) -> None:
        """Let the training loop run one turn; return at its end."""
        self._go.release()
        self._done.acquire()

    def _begin_turn(self) -> None:
        self._go.acquire()
        self._started = time.thread_time(), time.perf_counter()

    def _end_turn(self) -> None:
        self.cpu.append(time.thread_time() - self._started[0])
        self.wall.append(time.perf_counter() - self._started[1])
        self._done.release()


def make_loop(arm: str, root: Path, steps: int, observer: Any) -> TrainingLoop:
    changes = [f"training.total_timesteps={steps}", "logging.terminal=false", *(OFF if arm == "none" else ())]
    run = Run.create(root / arm, parse_experiment(override(load("ppo_cartpole"), changes)), datetime.now())
    loop = TrainingLoop(run, observer)
    if arm == "none":
        loop._reporter.logbook = NoLogbook()  # type: ignore[assignment]
        run.write_status = lambda _: None  # type: ignore[method-assign]
    return loop


class AddedCpuTime:
    """Measures the CPU time of the functions for logging, status and alerts; nested calls are counted once."""

    def __init__(self, loop: TrainingLoop) -> None:
        self.seconds, self._inside = 0.0, False
        added = [(loop._reporter.logbook, name) for name in ("add_experience", "add", "write", "write_means")]
        for owner, name in [*added, (loop._reporter.alerts, "check_row"), (loop._run, "write_status")]:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            if self._inside:
                return function(*arguments)
            self._inside, before = True, time.thread_time()
            try:
                return function(*arguments)
            finally:
                self._inside = False
                self.seconds += time.thread_time() - before

        return timed


def take_turns(steps: int, first: int) -> tuple[dict[str, Turns], float]:
    """Train with and without logging in alternating turns, starting with run number `first` of `ARMS`.

    Returns the times of both runs, and the CPU seconds of the functions for logging and of the background threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        turns = {arm: Turns() for arm in ARMS}
        loops = {arm: make_loop(arm, Path(folder), steps, turns[arm]) for arm in ARMS}
        added = AddedCpuTime(loops["all"])
        threads = [threading.Thread(target=turns[arm].run, args=(loops[arm],)) for arm in ARMS]
        for thread in threads:
            thread.start()
        before = time.process_time() - time.thread_time()
        order = [ARMS[first], ARMS[1 - first]]
        while not all(turn.finished for turn in turns.values()):
            for arm in order:
                if not turns[arm].finished:
                    turns[arm].take()
            order.reverse()
        for thread in threads:
            thread.join()
        behind = time.process_time() - time.thread_time() - before - sum(sum(turn.cpu) for turn in turns.values())
        weights = [loop._learner.snapshot().weights for loop in loops.values()]
        assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0]), (
            "both arms should learn the same weights"
        )
    # Background threads belong to the run with logging; their time is distributed evenly over its turns.
    share = max(0.0, behind) / len(turns["all"].cpu)
    turns["all"].cpu = [seconds + share for seconds in turns["all"].cpu]
    return turns, added.seconds + max(0.0, behind)


def ratios(of: dict[str, Turns], what: str) -> list[float]:
    return [b / a for a, b in zip(getattr(of["none"], what), getattr(of["all"], what), strict=True)]


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (4000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)


def peak_memory(arm: str, steps: int) -> int:
    """Train in a separate process and return its peak RAM in bytes."""
    command = [sys.executable, __file__, "--alone", arm, "--steps", str(steps)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Alone(Turns):
    """Observer of a training loop that runs without pauses."""

    def progress(self, progress: Progress) -> None: ...


def train_alone(arm: str, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_loop(arm, Path(folder), steps, Alone()).train()
    # In the parent, RUSAGE_CHILDREN would be at least the parent's own peak, so this process prints its own peak.
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")))


def show(name: str, values: list[float]) -> dict[str, float]:
    median, low, high = interval(values)
    print(
        f"{name:<16} {100 * (median - 1):+.2f} %  [{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}]  of {len(values)}"
    )
    return {"median": median, "low": low, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=99_840)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        train_alone(options.alone, options.steps)
        return
    found: dict[str, list[float]] = {"cpu": [], "cpu, counted": [], "wall": [], "memory": []}
    for repeat in range(options.repeats):
        turns, added = take_turns(options.steps, repeat % 2)
        for what in ("cpu", "wall"):
            found[what] += ratios(turns, what)
        seconds = {arm: sum(turn.cpu) for arm, turn in turns.items()}
        found["cpu, counted"].append(seconds["all"] / (seconds["all"] - added))
        print(f"run {repeat + 1}: {seconds['none']:.2f} s CPU time without, {seconds['all']:.2f} s with")
    for _ in range(options.repeats):
        none, everything = (peak_memory(arm, min(options.steps, 20_000)) for arm in ARMS)
        found["memory"].append(everything / none)
        print(f"RAM: {none / 1e6:.1f} MB without, {everything / 1e6:.1f} MB with")
    results = {name: show(name, values) for name, values in found.items()}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
