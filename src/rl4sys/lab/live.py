"""Whether what a server's policy learnt follows from its journal: it is learnt again, row by row, and compared."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rl4sys.algorithms.device import available_device, use_threads
from rl4sys.buffers.base import Provided
from rl4sys.errors import RunError
from rl4sys.experiment.recorded import load_pools, warm_start
from rl4sys.experiment.run import Run
from rl4sys.lab.difference import Place, compare
from rl4sys.lab.reasons import conditions, likely_reasons
from rl4sys.lab.recorded import Recorded
from rl4sys.lab.verdict import CHECKPOINT, POLICY, Ledger, Tell, Verdict
from rl4sys.learner import Learner, build_learner
from rl4sys.policy.snapshot import Snapshot
from rl4sys.server.journal import FILE, Journal, Row
from rl4sys.server.settings import live_learner_config
from rl4sys.server.task import LIVE, VERSIONS
from rl4sys.spec import Spec, State

_ROWS_AT_ONCE = 64
_NOT_COMPARED = "metrics, and what a server counts of its clients: both are written at times of its own"


def is_live(run: Run) -> bool:
    """Whether a server trains it."""
    return (run.path / LIVE).is_file()


def verify_live(run: Run, *, steps: int | None, threads: int | None, tell: Tell | None) -> Verdict:
    """Learn again from the first row of the journal, or from the oldest checkpoint that rows are still there after."""
    threads = threads or run.config.experiment.threads
    with run.locked(), closing(_journal(run)) as journal, tempfile.TemporaryDirectory() as scratch:
        use_threads(threads)
        checkpoints = _checkpoints(run)
        start = _start(run, journal, checkpoints)
        learner = _make_learner(run, start, Path(scratch))
        relearning = _Relearning(run, learner, checkpoints)
        last = max(state["learner"]["steps"] + state["learner"]["refused"] for state in checkpoints.values())
        if start.state is None:
            relearning.look(0)
        for row in _rows(journal, start.row, max(checkpoints)):
            relearning.take(row)
            if tell is not None:
                tell(relearning.steps, last)
            if relearning.parted or (steps is not None and relearning.steps >= steps):
                break
    return _verdict(run, relearning, last, threads, start)


@dataclass(frozen=True)
class _Start:
    """Before which row learning begins again, and from what; None for nothing learnt yet."""

    row: int
    state: State | None = None


class _Relearning:
    """A learner that is taken through the journal again, and looked at wherever the first one left a trace."""

    def __init__(self, run: Run, learner: Learner, checkpoints: Mapping[int, State]) -> None:
        self._learner, self._checkpoints = learner, checkpoints
        self._models = {int(path.stem): path for path in (run.path / VERSIONS).glob("*.safetensors")}
        self._version: int | None = None
        self.ledger = Ledger()

    @property
    def steps(self) -> int:
        return self._learner.steps + self._learner.refused

    @property
    def parted(self) -> bool:
        """Whether a checkpoint or model differed, and the next one did too."""
        return len({difference.step for difference in self.ledger.differences}) > 1

    def take(self, row: Row) -> None:
        self._learner.learn([row.trajectory()])
        self.look(row.row)

    def look(self, row: int) -> None:
        """Compare with what there is of the learner after that row: a model, if it is new, and a checkpoint."""
        if self._learner.version != self._version:
            self._version = self._learner.version
            self._compare_model(self._version)
        if row in self._checkpoints:
            self.ledger.compared.count(CHECKPOINT)
            recorded = {"learner": self._checkpoints[row]["learner"]}
            place = Place(self.steps, CHECKPOINT)
            self.ledger.note(compare(recorded, {"learner": self._learner.state()}, place), self.steps)

    def _compare_model(self, version: int) -> None:
        """One that was sent to clients, if it is still there."""
        if version in self._models:
            place = Place(self.steps, POLICY)
            self.ledger.compared.count(POLICY)
            recorded = Snapshot.from_bytes(self._models[version].read_bytes())
            self.ledger.note(compare(_weights(recorded), _weights(self._learner.portable()), place), self.steps)


def _weights(model: Snapshot | None) -> State:
    """Without how much it explores: that goes by the steps learnt when the server came to send it."""
    return dict(model.weights) if model is not None else {}


def _journal(run: Run) -> Journal:
    if not (run.path / FILE).is_file():
        raise RunError(f"{run.path} is a policy of a server without its {FILE}, so what it learnt from is not known")
    return Journal(run.path / FILE, read_only=True)


def _checkpoints(run: Run) -> dict[int, State]:
    """By the last row that each had learnt."""
    names = [name for name in run.checkpoints.names() if name.startswith("step_")]
    states = [run.checkpoints.load(name).state for name in names]
    if not states:
        raise RunError(f"{run.path} has no checkpoint, so there is nothing to verify")
    return {int(state["row"]): state for state in states}


def _start(run: Run, journal: Journal, checkpoints: Mapping[int, State]) -> _Start:
    held = [row.row for row in journal.after(0, 1)]
    if held == [1]:
        return _Start(0)
    usable = [row for row in sorted(checkpoints) if held and row >= held[0] - 1 and row < max(checkpoints)]
    if not usable:
        raise RunError(
            f"the journal of {run.path} no longer holds the rows between two of its checkpoints, so nothing can be "
            "learnt again; a server with `journal: archive` keeps them all"
        )
    return _Start(usable[0], checkpoints[usable[0]])


def _make_learner(run: Run, start: _Start, scratch: Path) -> Learner:
    config, live = run.config, json.loads((run.path / LIVE).read_bytes())
    spec = Spec.from_json(live["spec"])
    pools = load_pools(config.buffer, spec) if start.state is None else {}
    settings = live_learner_config(config, available_device(config.experiment.device))
    learner = build_learner(spec, settings, config.experiment.seed, Provided(scratch=scratch, pools=pools))
    if start.state is None:
        warm_start(learner, spec, config)
    else:
        learner.restore(start.state["learner"])
    return learner


def _rows(journal: Journal, after: int, last: int) -> Iterator[Row]:
    while rows := [row for row in journal.after(after, _ROWS_AT_ONCE) if row.row <= last]:
        yield from rows
        after = rows[-1].row


def _verdict(run: Run, relearning: _Relearning, last: int, threads: int, start: _Start) -> Verdict:
    if not relearning.ledger.compared.things:
        raise RunError(f"{run.path} left nothing to compare up to step {relearning.steps:,}; verify more of its steps")
    recorded, found = Recorded.of(run), relearning.ledger.found()
    told = [_NOT_COMPARED]
    if start.state is not None:
        told.append(f"what was learnt up to row {start.row:,} of the journal, which is no longer held")
    return Verdict(
        run=run.path,
        steps=relearning.steps,
        of_steps=last,
        compared=relearning.ledger.compared,
        differences=found,
        agreed_until=relearning.ledger.agreed_before(found[0].step) if found else relearning.steps,
        reasons=tuple(likely_reasons(recorded, found, relearning.steps, threads) if found else conditions(recorded)),
        not_compared=tuple(told),
    )
