"""The contract between experience and learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from pydantic import Field

from rl4sys.config import Config
from rl4sys.spec import Array, Columns, Space, State
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory

Batch: TypeAlias = Columns
"""Rows to learn from. What they mean is between a buffer and the algorithms that take its batches."""


class BufferConfig(Config):
    """What every buffer can be told."""

    type: str
    """Which buffer: trajectory (fresh experience, for on-policy algorithms), or one that replays: uniform, prioritized,
    her, sequence, union."""
    size: int = Field(gt=0, le=10**9)
    """Steps it holds; for `trajectory`, the steps of one rollout over all environments."""


GoalReward: TypeAlias = Callable[[Array, Array], Array]
"""Goals achieved and goals desired, a row each → the reward of each row."""


@dataclass(frozen=True)
class Provided:
    """What the host of a learner has for its buffer, and no config can hold."""

    goal_reward: GoalReward | None = None
    """The environment's own, where it has goals."""
    scratch: Path | None = None
    """A folder for files that end with the process; the system's for temporary files if there is none."""
    pools: Mapping[str, Sequence[Trajectory]] = field(default_factory=dict)
    """What the pools of a `union` hold from the start, by name; those that name a data set, what is in it."""


NOTHING = Provided()


@dataclass(frozen=True)
class Demand:
    """How much an algorithm wants to learn from, and when. On-policy algorithms leave it as it is."""

    batch_size: int = 1
    learning_starts: int = 0
    train_frequency: int = 1
    gradient_steps: int = 1
    n_step: int = 1
    gamma: float = 1.0
    provided: Provided = NOTHING
    """Filled in by the recipe."""


@dataclass(frozen=True)
class Room:
    """Bytes that a full buffer takes up."""

    memory: int
    disk: int = 0


class Buffer(Protocol):
    """Takes trajectories in, gives the batches that are due out.

    The class is called with its config and a `Demand`. It has ``Config``, and may have ``room(config, spec)``, which
    says how much `Room` it would take.
    """

    def add(self, trajectory: Trajectory, version: int) -> int:
        """Store what can be learnt from at this learner version; return the steps accepted."""

    def wants(self) -> int:
        """Steps still missing until the next batch is due; at least 1 once `batches` was exhausted."""

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches due since the last call; none while more data is needed."""

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Take back what the algorithm found out about the rows of a batch, such as priorities."""

    def state(self) -> State:
        """Written, or copied, before anything more is added: its segments are read only then."""

    def restore(self, state: State) -> None: ...


def space_bytes(*spaces: Space) -> int:
    """Of one value each."""
    return sum(math.prod(space.shape) * np.dtype(space.dtype).itemsize for space in spaces)


def transitions(trajectory: Trajectory) -> dict[str, Array]:
    """One row per step: obs.*, next_obs.*, action, reward, log_prob, terminated, ended, last.

    ``terminated`` and ``ended`` are true where the episode ended so; ``last`` where the trajectory did. The memory
    of a policy is left out: it is one row for all steps.
    """
    rows: dict[str, Array] = {}
    for name, column in trajectory.columns.items():
        if name.startswith(OBSERVATION):
            rows[name], rows[f"next_{name}"] = column[:-1], column[1:]
        elif name != MEMORY:
            rows[name] = column
    for name, value in (("terminated", trajectory.terminated), ("ended", trajectory.ended), ("last", True)):
        rows[name] = np.zeros(len(trajectory), bool)
        rows[name][-1:] = value
    return rows
