"""Experience: consecutive steps of one episode, chosen by one policy version."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Columns, State

OBSERVATION = "obs."
"""Columns whose name starts so hold one row more than there are steps."""

MEMORY = "memory"
"""What a policy remembers: the column of a trajectory, and among what `Policy.act` takes and gives."""


@dataclass(frozen=True)
class Trajectory:
    """T consecutive steps of one episode.

    Columns named ``obs.*`` hold T + 1 rows (the last is what the final action led to); ``action``, ``reward``
    and ``log_prob`` hold T. Where the policy has memory, ``memory`` holds one row: what it remembered before the first
    step. Only the last step can end the episode, so the end is two flags of the whole
    trajectory rather than two columns. A long episode may come in several trajectories, which then share
    ``episode`` and follow each other by ``offset``, the steps of that episode before this trajectory.
    """

    version: int
    columns: Columns
    episode: int = 0
    offset: int = 0
    terminated: bool = False
    truncated: bool = False

    def __post_init__(self) -> None:
        steps = len(self)
        for name, column in self.columns.items():
            expected = 1 if name == MEMORY else steps + name.startswith(OBSERVATION)
            if len(column) != expected:
                raise SpecError(
                    f"column {name} of a trajectory of {steps} steps has {len(column)} rows; expected {expected}"
                )

    def __len__(self) -> int:
        return len(self.columns["reward"])

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    def state(self) -> State:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of_state(cls, state: State) -> Trajectory:
        return cls(**{**state, "columns": {name: np.array(column) for name, column in state["columns"].items()}})
