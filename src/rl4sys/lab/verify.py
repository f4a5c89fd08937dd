"""Whether a run can be repeated bit for bit: it is done again, and compared with all that it wrote down."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl4sys.errors import NumericalError, RunError
from rl4sys.experiment.run import Run
from rl4sys.lab.difference import ABSENT, Difference, Place, compare, tree_of
from rl4sys.lab.live import is_live, verify_live
from rl4sys.lab.reasons import conditions, likely_reasons
from rl4sys.lab.recorded import STEP, Recorded
from rl4sys.lab.repeat import repeat
from rl4sys.lab.verdict import ALL, CHECKPOINT, EXPERIENCE, METRICS, POLICY, Ledger, Tell, Verdict
from rl4sys.spec import State
from rl4sys.trainer import Trainer

_AFTER_EVALUATION = ("evaluation", "evaluated_at", "best", "unsettled_since", "logbook")
"""What a checkpoint does not hold yet that was written where a stop broke off an evaluation."""


def verify(run: Run, *, steps: int | None = None, threads: int | None = None, tell: Tell | None = None) -> Verdict:
    """Repeat a run, whole or to a step, and compare; stops where the two have parted for good."""
    if is_live(run):
        return verify_live(run, steps=steps, threads=threads, tell=tell)
    recorded = Recorded.of(run)
    until = _until(recorded, steps)
    config = run.config
    if threads is not None:
        config = config.model_copy(update={"experiment": config.experiment.model_copy(update={"threads": threads})})
    comparison = Comparison(recorded, until, tell)
    with run.locked(), tempfile.TemporaryDirectory(prefix="rl4sys-verify-") as folder:
        try:
            repeat(Path(folder) / run.path.name, config, recorded.lives(), until, comparison.look)
            comparison.end()
        except NumericalError as problem:
            comparison.fail(str(problem))
    if not comparison.ledger.compared.things:
        first = min([*recorded.checkpoints, *(row[STEP] for row in recorded.rows[:1])])
        raise RunError(f"{run.path} has nothing to compare up to step {until:,}; its first record is of step {first:,}")
    return _verdict(recorded, comparison, config.experiment.threads)


def _until(recorded: Recorded, steps: int | None) -> int:
    last = recorded.last_step or 0
    if steps is not None and steps < 0:
        raise RunError(f"--steps is {steps}; it should be a step of the run, 0 to {last:,}")
    return last if steps is None else min(steps, last)


def _verdict(recorded: Recorded, comparison: Comparison, threads: int) -> Verdict:
    found = comparison.ledger.found()
    return Verdict(
        run=recorded.run.path,
        steps=comparison.reached,
        of_steps=recorded.last_step or 0,
        compared=comparison.ledger.compared,
        differences=found,
        agreed_until=comparison.ledger.agreed_before(found[0].step) if found else comparison.reached,
        reasons=tuple(likely_reasons(recorded, found, comparison.reached, threads) if found else conditions(recorded)),
        not_compared=tuple(comparison.not_compared),
    )


class Comparison:
    """Looks at a repetition after each of its rounds, and holds it against the record."""

    def __init__(self, recorded: Recorded, until: int, tell: Tell | None = None) -> None:
        self._recorded, self._until, self._tell = recorded, until, tell
        self._books = {EXPERIENCE: _Book(recorded.digests), METRICS: _Book(recorded.rows)}
        self._trainer: Trainer | None = None
        self.ledger = Ledger()
        self.not_compared: list[str] = []
        self.reached = 0

    def look(self, trainer: Trainer, run: Run) -> bool:
        """Compare what has come since the last time; true once the two have parted for good."""
        self._trainer = trainer
        self.reached = trainer.progress().steps
        for part, path in ((EXPERIENCE, run.digests), (METRICS, run.metrics)):
            self._compare_rows(part, path)
        if self.reached in self._recorded.checkpoints:
            self._compare_checkpoint(trainer)
        if self._tell is not None:
            self._tell(min(self.reached, self._until), self._until)
        return self._parted

    def fail(self, message: str) -> None:
        """The repetition could not go on, where the run did."""
        self.reached = self._trainer.progress().steps if self._trainer else 0
        self.ledger.note([Difference(self.reached, ALL, "numbers", "went on", message)], self.reached)

    @property
    def _parted(self) -> bool:
        """What was measured differs from then on; a checkpoint alone may have been changed later."""
        return any(difference.part in (METRICS, EXPERIENCE, ALL) for difference in self.ledger.differences)

    def _compare_rows(self, part: str, path: Path) -> None:
        for recorded, repeated in self._books[part].pairs(path):
            self.ledger.compared.count(part)
            self.ledger.note(_compare_row(part, recorded, repeated), min(recorded[STEP], repeated[STEP]))

    def _compare_checkpoint(self, trainer: Trainer) -> None:
        name = self._recorded.checkpoints[self.reached]
        store = self._recorded.run.checkpoints
        recorded, repeated = self._comparable(store.load(name).state, trainer.state())
        self.ledger.compared.count(CHECKPOINT)
        self.ledger.note(compare(recorded, repeated, Place(self.reached, CHECKPOINT)), self.reached)
        policies = tree_of(store.load_policy(name)), tree_of(trainer.portable())
        self.ledger.compared.count(POLICY)
        self.ledger.note(compare(*policies, Place(self.reached, POLICY)), self.reached)

    def _comparable(self, recorded: State, repeated: State) -> tuple[State, State]:
        """Both without what the recorded one cannot have."""
        if recorded["unsettled_since"] is not None:
            self.not_compared.append(f"what the evaluation at step {self.reached:,} decides, which a stop broke off")
            return _without(recorded, _AFTER_EVALUATION), _without(repeated, _AFTER_EVALUATION)
        if recorded["logbook"].get("experience") is None:
            self.not_compared.append(f"experience to step {self.reached:,}, of which an earlier release kept no digest")
            return _without(recorded, ("logbook",)), _without(repeated, ("logbook",))
        return recorded, repeated

    def end(self) -> None:
        """Compare what only one of the two has, once the repetition is through all lives of the run."""
        if not self._parted and self._trainer is not None:
            self._compare_ends(finished=self._trainer.progress().finished)

    def _compare_ends(self, *, finished: bool) -> None:
        """Rows that only one of the two has, and steps that only the run took."""
        if self.reached < self._until:
            ended = Difference(self.reached, ALL, "length", f"went on to step {self._until:,}", "ended")
            self.ledger.note([ended], self.reached)
        for part, book in self._books.items():
            lacking = book.lacking(self.reached)
            if lacking is not None:
                self.ledger.note([Difference(lacking, part, "row", "there", ABSENT)], lacking)
            elif finished and self._recorded.completed and book.extra is not None and book.recorded:
                self.ledger.note([Difference(book.extra, part, "row", ABSENT, "there")], book.extra)


class _Book:
    """Rows that a run recorded, and those of its repetition as they are written."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self.recorded = recorded
        self.extra: int | None = None
        """The step of the first row that only the repetition has."""
        self._next = self._read = 0

    def pairs(self, path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """What has been written since the last time, each row with the recorded one."""
        for row in self._new_rows(path):
            if self._next < len(self.recorded):
                self._next += 1
                yield self.recorded[self._next - 1], row
            elif self.extra is None:
                self.extra = row[STEP]

    def lacking(self, up_to: int) -> int | None:
        """The step of the first row up to there that the repetition should have and has not."""
        left = self.recorded[self._next : self._next + 1]
        return left[0][STEP] if left and left[0][STEP] <= up_to else None

    def _new_rows(self, path: Path) -> list[dict[str, Any]]:
        if not path.is_file() or path.stat().st_size == self._read:
            return []
        with path.open("rb") as file:
            file.seek(self._read)
            lines = file.readlines()
        self._read += sum(map(len, lines))
        return [json.loads(line) for line in lines]


def _compare_row(part: str, recorded: Mapping[str, Any], repeated: Mapping[str, Any]) -> Iterator[Difference | None]:
    if recorded[STEP] != repeated[STEP]:
        step = min(recorded[STEP], repeated[STEP])
        yield Difference(step, part, "row", f"at step {recorded[STEP]}", f"at step {repeated[STEP]}")
        return
    yield from compare(recorded, repeated, Place(recorded[STEP], part))


def _without(state: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name not in names}
