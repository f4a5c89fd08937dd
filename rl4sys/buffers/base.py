"""Buffer protocol: trajectories in, batches out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np
from pydantic import Field, PlainSerializer, WrapValidator

from rl4sys.config import Config
from rl4sys.spec import Array, Columns, Space, State
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory

Batch: TypeAlias = Columns
"""Rows for one update, as columns. Each buffer documents its columns; algorithms state the buffers they accept."""


AUTO = "auto"
"""Value of ``buffer.size`` in a config that fits the size to the memory."""


class AutoSize(int):
    """Largest size that ``buffer.size: auto`` may choose, in a config for which no size has been chosen yet.

    The host of the learner chooses a size when a run starts, and stores that number in the config of the run.
    """


def _keep_auto(value: Any, validate: Callable[[Any], int]) -> int:
    return AutoSize(validate(int(value))) if isinstance(value, AutoSize) else validate(value)


def _write_auto(size: int) -> int | str:
    return AUTO if isinstance(size, AutoSize) else size


Size: TypeAlias = Annotated[int, WrapValidator(_keep_auto), PlainSerializer(_write_auto, return_type=int | str)]
"""Number of steps; an `AutoSize` is written as auto."""


class BufferConfig(Config):
    """Options of every buffer."""

    type: str
    """Buffer type: trajectory (rollouts, for on-policy algorithms), or a replay buffer: uniform, prioritized, her,
    sequence, union."""
    size: Size = Field(gt=0, le=10**9)
    """Capacity in steps; for `trajectory`, the length of one rollout summed over all environments. "auto" takes the
    default of the algorithm, or less if that does not fit into the available memory."""


GoalReward: TypeAlias = Callable[[Array, Array], Array]
"""Maps achieved and desired goals, one per row, to the reward of each row."""


@dataclass(frozen=True)
class BufferResources:
    """Objects that the host of a learner passes to its buffer, because a config cannot contain them."""

    goal_reward: GoalReward | None = None
    """Reward function of a goal-conditioned environment; None otherwise."""
    scratch: Path | None = None
    """Directory for temporary files of the buffer; None for the system's temporary directory."""
    pools: Mapping[str, Sequence[Trajectory]] = field(default_factory=dict)
    """Initial trajectories of each pool of a `union` buffer, by pool name, loaded from the datasets of the pools."""


NO_RESOURCES = BufferResources()


@dataclass(frozen=True)
class Demand:
    """Batch size and update schedule of an algorithm. On-policy algorithms use the defaults."""

    batch_size: int = 1
    learning_starts: int = 0
    train_frequency: int = 1
    gradient_steps: int = 1
    n_step: int = 1
    gamma: float = 1.0
    resources: BufferResources = NO_RESOURCES
    """Objects that the host passes to the buffer; set by `AlgorithmSetup.make_buffer`."""


@dataclass(frozen=True)
class BufferBytes:
    """RAM and disk space that a full buffer needs, in bytes."""

    ram: int
    disk: int = 0


class Buffer(Protocol):
    """Stores trajectories and yields batches when they are due.

    A buffer class is called with its config and a `Demand`. It has an attribute ``Config``, and may have a static
    method ``required_bytes(config, spec)`` that returns the `BufferBytes` of a full buffer.
    """

    def add(self, trajectory: Trajectory, version: int) -> int:
        """Store the trajectory if it is usable at this learner version; return the number of accepted steps."""

    def steps_to_next_update(self) -> int:
        """Return the number of steps until the next batch is due; at least 1 after `batches` was exhausted."""

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches due since the last call; none if more data is needed."""

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Receive per-row results of the algorithm for a batch, such as priorities."""

    def state(self) -> State:
        """Return the state. Write or copy it before the next `add`: its segments are read lazily."""

    def restore(self, state: State) -> None: ...


def space_bytes(*spaces: Space) -> int:
    """Return the number of bytes of one value of each space, summed over the spaces."""
    return sum(math.prod(space.shape) * np.dtype(space.dtype).itemsize for space in spaces)


def transitions(trajectory: Trajectory) -> dict[str, Array]:
    """Convert to columns with one row per step: obs.*, next_obs.*, action, reward, log_prob, terminated, ended, last.

    ``terminated`` and ``ended`` mark the end of an episode, ``last`` the end of the trajectory. The policy's memory is
    left out, because it has one row per trajectory.
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
