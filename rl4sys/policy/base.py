"""Protocol that all policies implement."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Array, Columns, Spec


class Decision(NamedTuple):
    """Sampled actions, their log-probabilities and the next recurrent state (memory), one row per observation.

    Pass ``spec.action.legal(action)`` to the controlled system, because a sampled action may exceed the bounds of the
    action space.
    """

    action: Array
    log_prob: Array
    memory: Columns


class Policy(Protocol):
    """Maps observations to actions. The `Draws` argument is the only source of randomness."""

    @property
    def spec(self) -> Spec:
        """Spec of the observations that the policy takes, and of its actions."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        """Return one decision per observation row.

        ``memory`` is the recurrent state returned by the previous decision, with zeros in the rows where an episode
        starts; ``{}`` means all zeros. A recurrent policy returns the column ``memory``, a new float32 array of shape
        (N, M). Other policies return ``{}``. A row with a NaN log-probability keeps its previous memory.
        """

    def greedy(self) -> Policy:
        """Return the deterministic form of the policy, which selects the most likely action."""

    def snapshot(self, version: int) -> Snapshot:
        """Return a frozen copy of the policy for inference. Raises `ExportError` if the network cannot be exported."""
