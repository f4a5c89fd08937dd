"""What comes of verifying a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rl4sys.lab.difference import Difference

EXPERIENCE, METRICS, CHECKPOINT, POLICY, ALL = "experience", "metrics", "checkpoint", "policy", "run"
_MOST_DIFFERENCES = 1000

Tell = Callable[[int, int], None]
"""Told the steps repeated so far, and how many there are to repeat."""


@dataclass
class Compared:
    """How much was held against each other."""

    things: dict[str, int] = field(default_factory=dict)
    """How many of each part: rows of metrics, digests of experience, checkpoints, policies."""
    leaves: int = 0
    """Numbers, words and tensors in them."""

    def count(self, part: str) -> None:
        self.things[part] = self.things.get(part, 0) + 1


@dataclass(frozen=True)
class Verdict:
    """What came of verifying a run."""

    run: Path
    steps: int
    """How far it was repeated."""
    of_steps: int
    """How far the run had got."""
    compared: Compared
    differences: tuple[Difference, ...]
    """In the order of their steps."""
    agreed_until: int | None
    """The last step before the first difference at which something was compared; None if there is none."""
    reasons: tuple[str, ...]
    """What may be behind a difference; without one, what was other than then and made none."""
    not_compared: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        return not self.differences

    @property
    def first(self) -> tuple[Difference, ...]:
        """What differs where something first does."""
        return tuple(d for d in self.differences if d.step == self.differences[0].step)


class Ledger:
    """All that was compared so far, and how it came out."""

    def __init__(self) -> None:
        self.compared = Compared()
        self.differences: list[Difference] = []
        self._agreed: set[int] = set()

    def note(self, leaves: Iterable[Difference | None], step: int) -> None:
        """Take in what a comparison at that step gives, leaf by leaf."""
        found = []
        for leaf in leaves:
            self.compared.leaves += 1
            if leaf is not None:
                found.append(leaf)
        if not found:
            self._agreed.add(step)
        self.differences += found[: max(0, _MOST_DIFFERENCES - len(self.differences))]

    def found(self) -> tuple[Difference, ...]:
        """The differences in the order of their steps."""
        return tuple(sorted(self.differences, key=lambda difference: difference.step))

    def agreed_before(self, step: int) -> int | None:
        """The last step before that at which something was compared and the same."""
        return max((agreed for agreed in self._agreed if agreed < step), default=None)
