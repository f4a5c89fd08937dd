"""Recorded steps between two cuts, before and after they are encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rl4sys.spec import Columns
from rl4sys.trajectory import MEMORY


@dataclass(frozen=True)
class Recording:
    """Consecutive steps of one episode, as columns returned by the recorder."""

    columns: Columns
    version: int
    episode: int
    offset: int
    """Number of steps of the episode before this recording."""
    terminated: bool = False
    truncated: bool = False
    sequence: int = 0
    """Sequence number, assigned when the recording is submitted; 0 before that."""
    urgent: bool = False
    """True if this recording makes the learner's next update due."""

    @property
    def steps(self) -> int:
        return len(self.columns["reward"])

    @property
    def size(self) -> int:
        """Approximate RAM usage in bytes."""
        return sum(column.nbytes for column in self.columns.values())

    def without_last_step(self) -> Recording:
        """Return a copy without the last step, because no observation follows that step.

        The observation of the dropped step becomes the final observation of the copy.
        """
        columns = {name: column if name == MEMORY else column[:-1] for name, column in self.columns.items()}
        return Recording(columns, self.version, self.episode, self.offset)


class EncodedTrajectory(NamedTuple):
    """Bytes of a trajectory with its sequence number and its number of steps."""

    sequence: int
    steps: int
    content: bytes
