"""Verification of a hosted policy: retraining from its journal, and comparison with its checkpoints and models."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rl4sys.algorithms.device import available_device, use_threads
from rl4sys.buffers.base import BufferResources
from rl4sys.errors import RunError
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.run import Run
from rl4sys.server.journal import FILE, EncodedTrajectory, Journal
from rl4sys.server.live_config import live_learner_config
from rl4sys.spec import Spec, State
from rl4sys.training.warm_start import load_pools, warm_start
from rl4sys.verification.difference import Location, compare
from rl4sys.verification.reasons import changed_conditions, likely_reasons
from rl4sys.verification.recorded import RecordedRun
from rl4sys.verification.report import CHECKPOINT, POLICY, ComparisonLog, ProgressCallback, VerificationReport

_BATCH_ROWS = 64
_NOT_COMPARED = "metrics and client statistics, because the server writes them at irregular times"


def verify_live(
    run: Run, *, steps: int | None, threads: int | None, on_progress: ProgressCallback | None
) -> VerificationReport:
    """Verify a hosted policy by retraining from its journal.

    Retraining starts at the first journal row. If this row was deleted, retraining starts at the oldest checkpoint
    after which all rows are stored.
    """
    threads = threads or run.config.experiment.threads
    with run.locked(), closing(_journal(run)) as journal, tempfile.TemporaryDirectory() as scratch:
        use_threads(threads)
        checkpoints = _checkpoints(run)
        start = _start(run, journal, checkpoints)
        learner = _make_learner(run, start, Path(scratch))
        replay = _Replay(run, learner, checkpoints)
        last = max(state["learner"]["steps"] + state["learner"]["refused"] for state in checkpoints.values())
        if start.state is None:
            replay.compare_after(0)
        for row in _rows(journal, start.row, max(checkpoints)):
            replay.learn(row)
            if on_progress is not None:
                on_progress(replay.steps, last)
            if replay.has_diverged or (steps is not None and replay.steps >= steps):
                break
    return _report(run, replay, last, threads, start)


@dataclass(frozen=True)
class _Start:
    """Journal row and learner state at which the replay starts."""

    row: int
    """Number of the last row that is not replayed; 0 to replay all rows."""
    state: State | None = None
    """Checkpoint state to restore; None to start with a new learner."""


class _Replay:
    """Learner that is retrained from the journal and compared with all stored checkpoints and models."""

    def __init__(self, run: Run, learner: Learner, checkpoints: Mapping[int, State]) -> None:
        self._learner, self._checkpoints = learner, checkpoints
        self._models = run.directory.versions()
        self._version: int | None = None
        self.log = ComparisonLog()

    @property
    def steps(self) -> int:
        return self._learner.steps + self._learner.refused

    @property
    def has_diverged(self) -> bool:
        """True if records of two or more steps differ. A difference at one step may be an edited checkpoint."""
        return len({difference.step for difference in self.log.differences}) > 1

    def learn(self, row: EncodedTrajectory) -> None:
        self._learner.learn([row.decode()])
        self.compare_after(row.row)

    def compare_after(self, row: int) -> None:
        """Compare the model if its version is new, and the learner with the checkpoint after `row`, if any."""
        if self._learner.version != self._version:
            self._version = self._learner.version
            self._compare_model(self._version)
        if row in self._checkpoints:
            self.log.compared.count(CHECKPOINT)
            recorded = {"learner": self._checkpoints[row]["learner"]}
            location = Location(self.steps, CHECKPOINT)
            self.log.add(compare(recorded, {"learner": self._learner.state()}, location), self.steps)

    def _compare_model(self, version: int) -> None:
        """Compare the weights with the stored model of this version, if the run directory contains this model."""
        if version in self._models:
            location = Location(self.steps, POLICY)
            self.log.compared.count(POLICY)
            recorded = Snapshot.from_bytes(self._models[version].read_bytes())
            self.log.add(compare(_weights(recorded), _weights(self._learner.snapshot_or_none()), location), self.steps)


def _weights(model: Snapshot | None) -> State:
    """Return the weights of a model without its exploration rate, which depends on the time of publication."""
    return dict(model.weights) if model is not None else {}


def _journal(run: Run) -> Journal:
    if not (run.path / FILE).is_file():
        raise RunError(f"{run.path} is a hosted policy and cannot be verified, because it has no journal ({FILE})")
    return Journal(run.path / FILE, read_only=True)


def _checkpoints(run: Run) -> dict[int, State]:
    """Return the state of each checkpoint by the number of its last trained journal row."""
    names = [name for name in run.checkpoints.names() if name.startswith("step_")]
    states = [run.checkpoints.load(name).state for name in names]
    if not states:
        raise RunError(f"{run.path} has no checkpoint, so there is nothing to verify")
    return {int(state["row"]): state for state in states}


def _start(run: Run, journal: Journal, checkpoints: Mapping[int, State]) -> _Start:
    first = [row.row for row in journal.after(0, 1)]
    if first == [1]:
        return _Start(0)
    usable = [row for row in sorted(checkpoints) if first and row >= first[0] - 1 and row < max(checkpoints)]
    if not usable:
        raise RunError(
            f"the journal of {run.path} no longer contains the rows between two of its checkpoints, so the policy "
            "cannot be verified; run the server with `journal: archive` to keep all rows"
        )
    return _Start(usable[0], checkpoints[usable[0]])


def _make_learner(run: Run, start: _Start, scratch: Path) -> Learner:
    config, live = run.config, run.directory.live_config()
    spec = Spec.from_json(live["spec"])
    pools = load_pools(config.buffer, spec) if start.state is None else {}
    settings = live_learner_config(config, available_device(config.experiment.device))
    learner = build_learner(spec, settings, config.experiment.seed, BufferResources(scratch=scratch, pools=pools))
    if start.state is None:
        warm_start(learner, spec, config)
    else:
        learner.restore(start.state["learner"])
    return learner


def _rows(journal: Journal, after: int, last: int) -> Iterator[EncodedTrajectory]:
    while rows := [row for row in journal.after(after, _BATCH_ROWS) if row.row <= last]:
        yield from rows
        after = rows[-1].row


def _report(run: Run, replay: _Replay, last: int, threads: int, start: _Start) -> VerificationReport:
    log = replay.log
    if not log.compared.records:
        raise RunError(f"{run.path} has no records to compare up to step {replay.steps:,}; increase --steps")
    recorded, found = RecordedRun.read(run), log.sorted_differences()
    not_compared = [_NOT_COMPARED]
    if start.state is not None:
        not_compared.append(f"rows up to {start.row:,} of the journal, which are no longer stored")
    return VerificationReport(
        run=run.path,
        steps=replay.steps,
        of_steps=last,
        compared=log.compared,
        differences=found,
        agreed_until=log.last_match_before(found[0].step) if found else replay.steps,
        reasons=tuple(
            likely_reasons(recorded, found, replay.steps, threads) if found else changed_conditions(recorded)
        ),
        not_compared=tuple(not_compared),
    )
