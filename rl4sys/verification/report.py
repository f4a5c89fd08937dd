"""Result of verifying a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rl4sys.verification.difference import Difference

EXPERIENCE, METRICS, CHECKPOINT, POLICY, ALL = "experience", "metrics", "checkpoint", "policy", "run"
_MAX_DIFFERENCES = 1000

ProgressCallback = Callable[[int, int], None]
"""Function called with the number of repeated steps and the total number of steps to repeat."""


@dataclass
class ComparisonCounts:
    """Number of compared records and leaves."""

    records: dict[str, int] = field(default_factory=dict)
    """Number of records by kind: metrics rows, experience digests, checkpoints and policies."""
    leaves: int = 0
    """Total count of compared scalars, strings and tensors in all records."""

    def count(self, part: str) -> None:
        self.records[part] = self.records.get(part, 0) + 1


@dataclass(frozen=True)
class VerificationReport:
    """Differences between a run and its repetition, and their likely reasons."""

    run: Path
    steps: int
    """Last step of the repetition."""
    of_steps: int
    """Last step of the run."""
    compared: ComparisonCounts
    differences: tuple[Difference, ...]
    """Differences found, sorted by step; at most 1,000."""
    agreed_until: int | None
    """Last compared step before the first difference; None if nothing was compared before it."""
    reasons: tuple[str, ...]
    """Likely reasons for the differences. For an identical run: changed conditions that had no effect."""
    not_compared: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        return not self.differences

    @property
    def first(self) -> tuple[Difference, ...]:
        """All differences at the earliest step with a difference."""
        return tuple(d for d in self.differences if d.step == self.differences[0].step)


class ComparisonLog:
    """Counts and differences of all comparisons so far."""

    def __init__(self) -> None:
        self.compared = ComparisonCounts()
        self.differences: list[Difference] = []
        self._matching_steps: set[int] = set()

    def add(self, leaves: Iterable[Difference | None], step: int) -> None:
        """Add the results of one comparison at `step`: for each leaf a `Difference`, or None if equal."""
        found = []
        for leaf in leaves:
            self.compared.leaves += 1
            if leaf is not None:
                found.append(leaf)
        if not found:
            self._matching_steps.add(step)
        self.differences += found[: max(0, _MAX_DIFFERENCES - len(self.differences))]

    def sorted_differences(self) -> tuple[Difference, ...]:
        """Return the differences sorted by step."""
        return tuple(sorted(self.differences, key=lambda difference: difference.step))

    def last_match_before(self, step: int) -> int | None:
        """Return the last step before `step` at which a comparison found no difference, or None."""
        return max((match for match in self._matching_steps if match < step), default=None)
