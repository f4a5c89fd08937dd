"""Verification of a run: repetition of the run and bit-exact comparison with its records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl4sys.errors import NumericalError, RunError
from rl4sys.runs.metrics import AppendedRows
from rl4sys.runs.run import Run
from rl4sys.spec import State
from rl4sys.training.loop import TrainingLoop
from rl4sys.verification.difference import ABSENT, Difference, Location, compare, snapshot_tree
from rl4sys.verification.live import verify_live
from rl4sys.verification.reasons import changed_conditions, likely_reasons
from rl4sys.verification.recorded import STEP, RecordedRun
from rl4sys.verification.repeat import repeat
from rl4sys.verification.report import (
    ALL,
    CHECKPOINT,
    EXPERIENCE,
    METRICS,
    POLICY,
    ComparisonLog,
    ProgressCallback,
    VerificationReport,
)

_AFTER_EVALUATION = ("evaluation", "evaluated_at", "best", "unsettled_since", "logbook")
"""State fields that an evaluation updates; outdated in the checkpoint of a run that stopped during an evaluation."""


def verify(
    run: Run, *, steps: int | None = None, threads: int | None = None, on_progress: ProgressCallback | None = None
) -> VerificationReport:
    """Repeat a run, completely or up to step `steps`, and compare the results with its records.

    Stops early once metrics or experience differ.
    """
    if run.directory.is_live:
        return verify_live(run, steps=steps, threads=threads, on_progress=on_progress)
    recorded = RecordedRun.read(run)
    until = _last_step(recorded, steps)
    config = run.config
    if threads is not None:
        config = config.model_copy(update={"experiment": config.experiment.model_copy(update={"threads": threads})})
    comparison = Comparison(recorded, until, on_progress)
    with run.locked(), tempfile.TemporaryDirectory(prefix="rl4sys-verify-") as directory:
        try:
            repeat(Path(directory) / run.path.name, config, recorded.attempts(), until, comparison.on_round)
            comparison.compare_ends()
        except NumericalError as problem:
            comparison.fail(str(problem))
    if not comparison.log.compared.records:
        first = min([*recorded.checkpoints, *(row[STEP] for row in recorded.rows[:1])])
        raise RunError(
            f"{run.path} has no records to compare up to step {until:,}; its first record is at step {first:,}"
        )
    return _report(recorded, comparison, config.experiment.threads)


def _last_step(recorded: RecordedRun, steps: int | None) -> int:
    last = recorded.last_step or 0
    if steps is not None and steps < 0:
        raise RunError(f"--steps is {steps}; expected a step of the run, 0 to {last:,}")
    return last if steps is None else min(steps, last)


def _report(recorded: RecordedRun, comparison: Comparison, threads: int) -> VerificationReport:
    found = comparison.log.sorted_differences()
    reached = comparison.reached
    return VerificationReport(
        run=recorded.run.path,
        steps=reached,
        of_steps=recorded.last_step or 0,
        compared=comparison.log.compared,
        differences=found,
        agreed_until=comparison.log.last_match_before(found[0].step) if found else reached,
        reasons=tuple(likely_reasons(recorded, found, reached, threads) if found else changed_conditions(recorded)),
        not_compared=tuple(comparison.not_compared),
    )


class Comparison:
    """Compares a repetition with the records after each round."""

    def __init__(self, recorded: RecordedRun, until: int, on_progress: ProgressCallback | None = None) -> None:
        self._recorded, self._until, self._on_progress = recorded, until, on_progress
        self._rows = {EXPERIENCE: _RowMatcher(recorded.digests), METRICS: _RowMatcher(recorded.rows)}
        self._appended: dict[str, AppendedRows] = {}
        self._loop: TrainingLoop | None = None
        self.log = ComparisonLog()
        self.not_compared: list[str] = []
        self.reached = 0

    def on_round(self, loop: TrainingLoop, run: Run) -> bool:
        """Compare all new rows and the checkpoint at this step; return True once the runs have diverged."""
        self._loop = loop
        self.reached = loop.progress().steps
        if not self._appended:
            self._appended = {
                EXPERIENCE: run.directory.appended_digests(),
                METRICS: run.directory.appended_metrics(),
            }
        for part, appended in self._appended.items():
            self._compare_rows(part, appended.read())
        if self.reached in self._recorded.checkpoints:
            self._compare_checkpoint(loop)
        if self._on_progress is not None:
            self._on_progress(min(self.reached, self._until), self._until)
        return self._has_diverged

    def fail(self, message: str) -> None:
        """Record that the repetition failed with an error at a step where the run did not."""
        self.reached = self._loop.progress().steps if self._loop else 0
        self.log.add([Difference(self.reached, ALL, "training", "continued", message)], self.reached)

    @property
    def _has_diverged(self) -> bool:
        """True if metrics or experience differ. A difference only in a checkpoint may be an edit after the run."""
        return any(difference.part in (METRICS, EXPERIENCE, ALL) for difference in self.log.differences)

    def _compare_rows(self, part: str, rows: Sequence[dict[str, Any]]) -> None:
        for recorded, repeated in self._rows[part].pairs(rows):
            self.log.compared.count(part)
            self.log.add(_compare_row(part, recorded, repeated), min(recorded[STEP], repeated[STEP]))

    def _compare_checkpoint(self, loop: TrainingLoop) -> None:
        name = self._recorded.checkpoints[self.reached]
        store = self._recorded.run.checkpoints
        recorded, repeated = self._comparable(store.load(name).state, loop.state())
        self.log.compared.count(CHECKPOINT)
        self.log.add(compare(recorded, repeated, Location(self.reached, CHECKPOINT)), self.reached)
        policies = snapshot_tree(store.load_policy(name)), snapshot_tree(loop.snapshot_or_none())
        self.log.compared.count(POLICY)
        self.log.add(compare(*policies, Location(self.reached, POLICY)), self.reached)

    def _comparable(self, recorded: State, repeated: State) -> tuple[State, State]:
        """Return both states without the fields that are missing or outdated in the recorded state."""
        if recorded["unsettled_since"] is not None:
            self.not_compared.append(
                f"results of the evaluation at step {self.reached:,}, which was interrupted by a stop"
            )
            return _without(recorded, _AFTER_EVALUATION), _without(repeated, _AFTER_EVALUATION)
        if recorded["logbook"].get("experience") is None:
            self.not_compared.append(
                f"experience up to step {self.reached:,}, because an earlier release stored no digest"
            )
            return _without(recorded, ("logbook",)), _without(repeated, ("logbook",))
        return recorded, repeated

    def compare_ends(self) -> None:
        """Compare the lengths after the last round and find rows that only the run or only the repetition has."""
        if not self._has_diverged and self._loop is not None:
            self._compare_ends(finished=self._loop.progress().finished)

    def _compare_ends(self, *, finished: bool) -> None:
        if self.reached < self._until:
            ended = Difference(self.reached, ALL, "length", f"continued to step {self._until:,}", "ended")
            self.log.add([ended], self.reached)
        for part, rows in self._rows.items():
            missing = rows.first_missing(self.reached)
            if missing is not None:
                self.log.add([Difference(missing, part, "row", "present", ABSENT)], missing)
            elif finished and self._recorded.completed and rows.extra is not None and rows.recorded:
                self.log.add([Difference(rows.extra, part, "row", ABSENT, "present")], rows.extra)


class _RowMatcher:
    """Pairs rows of the repetition, as they are written, with recorded rows."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self.recorded = recorded
        self.extra: int | None = None
        """Step of the first row that only the repetition has."""
        self._next = 0

    def pairs(self, rows: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each new row together with its recorded row."""
        for row in rows:
            if self._next < len(self.recorded):
                self._next += 1
                yield self.recorded[self._next - 1], row
            elif self.extra is None:
                self.extra = row[STEP]

    def first_missing(self, up_to: int) -> int | None:
        """Return the step of the first recorded row up to `up_to` that the repetition lacks, or None."""
        left = self.recorded[self._next : self._next + 1]
        return left[0][STEP] if left and left[0][STEP] <= up_to else None


def _compare_row(part: str, recorded: Mapping[str, Any], repeated: Mapping[str, Any]) -> Iterator[Difference | None]:
    if recorded[STEP] != repeated[STEP]:
        step = min(recorded[STEP], repeated[STEP])
        yield Difference(step, part, "row", f"at step {recorded[STEP]}", f"at step {repeated[STEP]}")
        return
    yield from compare(recorded, repeated, Location(recorded[STEP], part))


def _without(state: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name not in names}
