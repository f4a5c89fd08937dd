"""Trajectory: consecutive steps of one episode by one policy version."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.spec import Columns, State

OBSERVATION = "obs."
"""Prefix of the names of observation columns. These columns have one more row than the trajectory has steps."""

MEMORY = "memory"
"""Name of the column with the recurrent state, in trajectories and in `Policy.act`."""


@dataclass(frozen=True)
class Trajectory:
    """T consecutive steps of one episode.

    Columns named ``obs.*`` have T + 1 rows (the last is the final observation); ``action``, ``reward`` and ``log_prob``
    have T rows. For recurrent policies, ``memory`` has one row: the recurrent state before the first step. Only the
    last step can end the episode, so ``terminated`` and ``truncated`` apply to the whole trajectory. A long episode may
    be split into several trajectories with the same ``episode``, ordered by ``offset``, the number of earlier steps of
    the episode.
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
                    f"column {name!r} of a trajectory of {steps} steps has {len(column)} rows; expected {expected}"
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
