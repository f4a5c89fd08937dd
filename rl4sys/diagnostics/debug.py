"""Debug training: `rl4sys train --debug` with checks of every layer, histograms and a profile.

Results are the same as without --debug, except for rounding, because torch computes updates instead of the native core.
Findings are written to ``logs/debug/`` and shown to the user.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rl4sys.algorithms.base import Metrics
from rl4sys.diagnostics.histograms import HistogramWriter
from rl4sys.diagnostics.inspection import Inspection
from rl4sys.diagnostics.stopwatch import Stopwatch
from rl4sys.learner.footprint import learner_cost
from rl4sys.machine import format_bytes, resident_memory
from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.directory import DEBUG_TAG
from rl4sys.runs.run import Run
from rl4sys.spec import Columns, Spec
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Observer, Progress
from rl4sys.trajectory import Trajectory

ENVIRONMENT, ACTING, BUFFER = "environment", "acting", "buffer"
EVALUATION, LOGGING, CHECKPOINT, REST = "evaluation", "logging", "checkpoint", "everything else"
MAX_STEPS, MAX_EVAL_EPISODES = 5_000, 2
_ALLOWED_GROWTH_BYTES = 100 * 10**6


def shrink_config(config: ExperimentConfig, kept: Iterable[str]) -> tuple[ExperimentConfig, list[str]]:
    """Shorten training, except for settings in `kept`. Return the new config and a message for each changed setting."""
    training = config.training
    steps = MAX_STEPS + int(getattr(config.algorithm, "learning_starts", 0))
    limits = {"total_timesteps": steps, "num_eval_episodes": MAX_EVAL_EPISODES}
    kept = set(kept)
    changes = {
        name: limit
        for name, limit in limits.items()
        if f"training.{name}" not in kept and getattr(training, name) > limit
    }
    messages = [
        f"--debug sets training.{name} to {limit:,} instead of {getattr(training, name):,}; to keep your value, give "
        "it on the command line"
        for name, limit in changes.items()
    ]
    return config.model_copy(update={"training": training.model_copy(update=changes)}), messages


def tagged_as_debug(config: ExperimentConfig) -> ExperimentConfig:
    """Add the tag by which rankings, comparisons and cleanup distinguish debug runs from other runs."""
    tags = list(dict.fromkeys([*config.experiment.tags, DEBUG_TAG]))
    return config.model_copy(update={"experiment": config.experiment.model_copy(update={"tags": tags})})


@dataclass(frozen=True)
class PhaseTime:
    """Total time, number of entries and RAM of one phase of training, such as evaluation."""

    phase: str
    seconds: float
    count: int
    memory_growth: int
    """Growth of the RAM of the process within the phase in bytes; negative if the RAM shrank."""
    memory_peak: int
    """Peak RAM of the process in bytes: the larger of the values at the start and the end of the phase."""


class DebugTrainingLoop(TrainingLoop):
    """Training loop with inspection of the learner, a profile and a RAM monitor."""

    def __init__(self, run: Run, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(run, observer, clock)
        self._watch = Stopwatch(clock, resident_memory)
        self._inspection = Inspection(self._learner.algorithm, self._watch)
        self._learner.algorithm = self._inspection.algorithm
        cost = learner_cost(self._actor.spec, run.config.learner("cpu"))
        self._ram = RamMonitor(cost.buffer_bytes - cost.disk_bytes)
        self._folder = run.logs / "debug"
        self._writer: HistogramWriter | None = None
        self._has_histograms = False
        self._reported: set[str] = set()

    def train(self) -> Progress:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._writer = HistogramWriter(self._folder)
            stack.callback(self._writer.close)
            stack.callback(self._write_profile)
            stack.enter_context(self._inspection.installed())
            return super().train()

    def profile(self) -> list[PhaseTime]:
        """Return the time and RAM of each phase, longest first; empty before `train`."""
        watch = self._watch
        phases = [
            PhaseTime(name, seconds, watch.counts[name], watch.growth[name], watch.peaks[name])
            for name, seconds in watch.seconds.items()
        ]
        return sorted(phases, key=lambda phase: -phase.seconds)

    @property
    def folder(self) -> Path:
        """Directory with the debug files that `written` lists."""
        return self._folder

    def written(self) -> list[str]:
        """Return the names of the files in `folder`. The TensorBoard files, if written, are listed as histograms."""
        files = sorted(path.name for path in self._folder.glob("*") if path.suffix in (".json", ".txt"))
        return [*(["histograms"] if self._has_histograms else []), *files]

    def _run_rounds(self) -> None:
        with self._watch.phase(REST):
            super()._run_rounds()

    def _collect_and_learn(
        self, collect: Callable[[], list[Trajectory]], learn: Callable[[], list[Metrics]]
    ) -> tuple[list[Trajectory], list[Metrics]]:
        """Collect and then learn, not concurrently, so that each phase can be timed."""
        return collect(), learn()

    def _collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        with self._watch.phase(ENVIRONMENT):
            return super()._collect(policy, version, steps)

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
        self._write_report()

    def _save(self, *, best: bool = False) -> None:
        with self._watch.phase(CHECKPOINT):
            super()._save(best=best)

    def _write_report(self) -> None:
        """Write the statistics since the last metrics row to TensorBoard, and report each new finding once."""
        assert self._writer is not None  # rows are written only during training
        report, steps = self._inspection.report(), self.progress().steps
        resident = resident_memory()
        findings = [*report.findings, *self._ram.check(steps, resident)]
        self._writer.write(steps, report.values, {**report.scalars, "memory/resident_bytes": float(resident)})
        self._has_histograms = True
        self._inspection.save_trace(self._folder / "trace.json")
        for key, text in findings:
            if key not in self._reported:
                self._reported.add(key)
                self._report_finding(steps, text)

    def _report_finding(self, steps: int, text: str) -> None:
        self._observer.note(f"at step {steps:,}: {text}")
        with (self._folder / "findings.txt").open("a", encoding="utf-8") as file:
            file.write(f"{steps:>12,}  {text}\n")

    def _write_profile(self) -> None:
        self._inspection.save_trace(self._folder / "trace.json")
        rows = [
            {
                "what": one.phase,
                "seconds": one.seconds,
                "times": one.count,
                "memory_growth_bytes": one.memory_growth,
                "memory_peak_bytes": one.memory_peak,
            }
            for one in self.profile()
        ]
        (self._folder / "profile.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


class RamMonitor:
    """Reports a possible memory leak if RAM usage grows by 100 MB more than the size of the buffer."""

    def __init__(self, expected_bytes: int) -> None:
        self._allowed = expected_bytes + _ALLOWED_GROWTH_BYTES
        self._first: tuple[int, int] | None = None

    def check(self, steps: int, resident: int) -> list[tuple[str, str]]:
        """Return a finding (key, text) if RAM usage has grown too much since the last finding or the first call."""
        self._first = self._first or (steps, resident)
        since, start = self._first
        if resident - start <= self._allowed:
            return []
        grown = resident - start
        self._first = steps, resident
        return [
            (
                f"RAM at {steps}",
                f"RAM usage grew by {format_bytes(grown)} to {format_bytes(resident)} since step {since:,}, "
                f"but the buffer takes at most {format_bytes(self._allowed - _ALLOWED_GROWTH_BYTES)}: "
                "possible memory leak",
            )
        ]


@dataclass(frozen=True)
class _TimedPolicy:
    """Policy wrapper that measures the time of `act`. The greedy policy, used for evaluation, is not measured."""

    policy: Policy
    watch: Stopwatch

    @property
    def spec(self) -> Spec:
        return self.policy.spec

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        with self.watch.phase(ACTING):
            return self.policy.act(observation, memory, draws)

    def greedy(self) -> Policy:
        return self.policy.greedy()

    def snapshot(self, version: int) -> Snapshot:
        return self.policy.snapshot(version)
