"""The contract of anything that chooses actions."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Array, Columns


class Decision(NamedTuple):
    """Actions as drawn (the system is given ``spec.action.legal(action)``), one row per observation."""

    action: Array
    log_prob: Array
    memory: Columns


class Policy(Protocol):
    """Chooses actions. All its randomness comes from the draws it is given."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        """One decision per row; ``memory`` is what the last call returned, its rows 0 where an episode starts.

        ``{}`` stands for zeros. A policy with memory returns it as the column ``memory``, a fresh float32 array of
        shape (N, M); one without returns ``{}``. A row whose log-probability is NaN keeps the memory it had.
        """

    def greedy(self) -> Policy:
        """The same policy acting by its best guess, without chance."""

    def snapshot(self, version: int) -> Snapshot:
        """The policy as it is now, frozen for inference elsewhere; `ExportError` where that is impossible."""
