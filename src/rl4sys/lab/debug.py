"""Training under a magnifying glass: what `rl4sys train --debug` does more than training does.

The run learns and measures the same, but for the last digits of what the native core computes otherwise; what is seen
goes to ``logs/debug/`` and to the user.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rl4sys.algorithms.base import Metrics
from rl4sys.algorithms.inspection import Inspection
from rl4sys.algorithms.stopwatch import Stopwatch
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.histograms import HistogramWriter
from rl4sys.experiment.machine import in_words, resident_memory
from rl4sys.experiment.run import Run
from rl4sys.learner import learner_cost
from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Columns
from rl4sys.trainer import Errand, Observer, Progress, Trainer
from rl4sys.trajectory import Trajectory

ENVIRONMENT, ACTING, BUFFER = "environment", "acting", "buffer"
EVALUATION, LOGGING, CHECKPOINT, REST = "evaluation", "logging", "checkpoint", "everything else"
MOST_STEPS, MOST_EVAL_EPISODES = 5_000, 2
_GROWTH = 100 * 10**6


def small(config: ExperimentConfig, kept: Iterable[str]) -> tuple[ExperimentConfig, list[str]]:
    """The config made small enough to look at, except for the settings in ``kept``; and what was changed, in words."""
    training = config.training
    steps = MOST_STEPS + int(getattr(config.algorithm, "learning_starts", 0))
    limits = {"total_timesteps": steps, "num_eval_episodes": MOST_EVAL_EPISODES}
    kept = set(kept)
    changes = {
        name: most for name, most in limits.items() if f"training.{name}" not in kept and getattr(training, name) > most
    }
    said = [
        f"--debug makes training.{name} {most:,} instead of {getattr(training, name):,}; what is given on the "
        "command line stays"
        for name, most in changes.items()
    ]
    return config.model_copy(update={"training": training.model_copy(update=changes)}), said


@dataclass(frozen=True)
class Spent:
    """What one kind of work took."""

    what: str
    seconds: float
    times: int


class DebugTrainer(Trainer):
    """Trains as `Trainer` does, looks into the learner, and keeps account of time and memory."""

    def __init__(self, run: Run, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(run, observer, clock)
        self._watch = Stopwatch(clock)
        self._inspection = Inspection(self._learner.algorithm, self._watch)
        self._learner.algorithm = self._inspection.algorithm
        cost = learner_cost(self._actor.spec, run.config.learner("cpu"))
        self._memory = MemoryWatch(cost.buffer_bytes - cost.disk_bytes)
        self._folder = run.logs / "debug"
        self._writer: HistogramWriter | None = None
        self._found: set[str] = set()

    def train(self) -> Progress:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._writer = HistogramWriter(self._folder)
            stack.callback(self._writer.close)
            stack.callback(self._write_profile)
            stack.enter_context(self._inspection.installed())
            return super().train()

    def profile(self) -> list[Spent]:
        """Where the time went, most of it first; empty before `train`."""
        spent = [Spent(what, seconds, self._watch.times[what]) for what, seconds in self._watch.seconds.items()]
        return sorted(spent, key=lambda one: -one.seconds)

    @property
    def folder(self) -> Path:
        """Where all that was seen is written."""
        return self._folder

    def _run_rounds(self) -> None:
        with self._watch.phase(REST):
            super()._run_rounds()

    def _at_once(
        self, collect: Callable[[], list[Trajectory]], learn: Callable[[], list[Metrics]]
    ) -> tuple[list[Trajectory], list[Metrics]]:
        """One after the other, so that it can be told which took how long."""
        return collect(), learn()

    def _collect(self, errand: Errand) -> list[Trajectory]:
        with self._watch.phase(ENVIRONMENT):
            return super()._collect(errand)

    def _learn(self, trajectories: list[Trajectory]) -> list[Metrics]:
        with self._watch.phase(BUFFER):
            return super()._learn(trajectories)

    def _current_policy(self) -> Policy:
        return _TimedPolicy(super()._current_policy(), self._watch)

    def _evaluate(self) -> bool:
        with self._watch.phase(EVALUATION):
            return super()._evaluate()

    def _log_means(self) -> None:
        with self._watch.phase(LOGGING):
            super()._log_means()
        self._report()

    def _save(self, *, best: bool = False) -> None:
        with self._watch.phase(CHECKPOINT):
            super()._save(best=best)

    def _report(self) -> None:
        """What was seen since the last row: to TensorBoard, and what is worth a look to the user, once."""
        assert self._writer is not None  # rows are written while training
        report, steps = self._inspection.report(), self.progress().steps
        resident = resident_memory()
        findings = [*report.findings, *self._memory.see(steps, resident)]
        self._writer.write(steps, report.values, {**report.measured, "memory/resident_bytes": float(resident)})
        self._inspection.save_trace(self._folder / "trace.json")
        for key, text in findings:
            if key not in self._found:
                self._found.add(key)
                self._tell(steps, text)

    def _tell(self, steps: int, text: str) -> None:
        self._observer.note(f"at step {steps:,}: {text}")
        with (self._folder / "findings.txt").open("a", encoding="utf-8") as file:
            file.write(f"{steps:>12,}  {text}\n")

    def _write_profile(self) -> None:
        self._inspection.save_trace(self._folder / "trace.json")
        rows = [{"what": one.what, "seconds": one.seconds, "times": one.times} for one in self.profile()]
        (self._folder / "profile.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


class MemoryWatch:
    """The memory of the process from row to row; a buffer that fills is no leak."""

    def __init__(self, expected_bytes: int) -> None:
        self._allowed = expected_bytes + _GROWTH
        self._first: tuple[int, int] | None = None
        self._most = 0

    def see(self, steps: int, resident: int) -> list[tuple[str, str]]:
        """What to tell the user, by a key; told again each time that as much has come on top."""
        self._first = self._first or (steps, resident)
        since, start = self._first
        self._most = max(self._most, resident)
        if resident - start <= self._allowed:
            return []
        grown = resident - start
        self._first = steps, resident
        return [
            (
                f"memory at {steps}",
                f"memory grew by {in_words(grown)} to {in_words(resident)} since step {since:,}, and the buffer takes "
                f"{in_words(self._allowed - _GROWTH)} at most: something keeps what it should let go",
            )
        ]


@dataclass(frozen=True)
class _TimedPolicy:
    """A policy whose decisions are timed; how it is judged is not its own time."""

    policy: Policy
    watch: Stopwatch

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        with self.watch.phase(ACTING):
            return self.policy.act(observation, memory, draws)

    def greedy(self) -> Policy:
        return self.policy.greedy()

    def snapshot(self, version: int) -> Snapshot:
        return self.policy.snapshot(version)
