"""Protocol of buffers, which store trajectories and return batches."""

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
"""Rows for one update, as arrays by column name. The documentation of each buffer class lists its columns."""


AUTO = "auto"
"""Value of ``buffer.size`` that selects the size automatically, so that the buffer fits into the available RAM."""


class AutoSize(int):
    """Buffer size of a config with ``buffer.size: auto``, until a size is chosen; the value is the maximum size.

    The host of the learner chooses a size when a run starts, and stores the chosen size in the config of the run.
    """


def _keep_auto(value: Any, validate: Callable[[Any], int]) -> int:
    return AutoSize(validate(int(value))) if isinstance(value, AutoSize) else validate(value)


def _write_auto(size: int) -> int | str:
    return AUTO if isinstance(size, AutoSize) else size


Size: TypeAlias = Annotated[int, WrapValidator(_keep_auto), PlainSerializer(_write_auto, return_type=int | str)]
"""Buffer size in steps; an `AutoSize` is serialized as ``auto``."""


class BufferConfig(Config):
    """Options that all buffers have."""

    type: str
    """Buffer type: trajectory (rollouts, for on-policy algorithms), or a replay buffer: uniform, prioritized, her,
    sequence, union."""
    size: Size = Field(gt=0, le=10**9)
    """Capacity in steps; for `trajectory`, the length of one rollout summed over all environments. "auto" uses the
    default size of the algorithm, or a smaller size if the default does not fit into the available RAM."""


GoalReward: TypeAlias = Callable[[Array, Array], Array]
"""Function from achieved goals and desired goals (one of each per row) to the reward of each row."""


@dataclass(frozen=True)
class BufferResources:
    """Objects that the host of a learner passes to its buffer, because a config cannot contain them."""

    goal_reward: GoalReward | None = None
    """Reward function of a goal-conditioned environment; None otherwise."""
    scratch: Path | None = None
    """Directory for temporary files of the buffer; None uses the temporary directory of the system."""
    pools: Mapping[str, Sequence[Trajectory]] = field(default_factory=dict)
    """Initial trajectories of each pool of a `union` buffer, by pool name, loaded from the datasets of the pools."""


NO_RESOURCES = BufferResources()


@dataclass(frozen=True)
class Demand:
    """Batches that an algorithm needs: batch size, update schedule and n-step return.

    On-policy algorithms use the defaults.
    """

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
    """Stores trajectories, and yields batches when updates are due.

    A buffer class is called with its config and a `Demand`. It has an attribute ``Config``, and may have a static
    method ``required_bytes(config, spec)`` that returns the `BufferBytes` of a full buffer.
    """

    def add(self, trajectory: Trajectory, version: int) -> int:
        """Store a trajectory, unless it is too stale for the learner version; return the number of stored steps."""

    def steps_to_next_update(self) -> int:
        """Return the number of steps until the next batch is due; at least 1 after `batches` was exhausted."""

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches that became due since the last call; yield nothing if more steps are needed first."""

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        """Receive per-row results of the algorithm for a batch, such as priorities."""

    def state(self) -> State:
        """Return the state for a checkpoint. Its segments are read lazily, so save or copy it before the next `add`."""

    def restore(self, state: State) -> None: ...


def space_bytes(*spaces: Space) -> int:
    """Return the total size in bytes of one element of each space."""
    return sum(math.prod(space.shape) * np.dtype(space.dtype).itemsize for space in spaces)


def transitions(trajectory: Trajectory) -> dict[str, Array]:
    """Return columns with one row per step: obs.*, next_obs.*, action, reward, log_prob, terminated, ended, last.

    ``terminated`` and ``ended`` (terminated or truncated) mark the last step of an episode, ``last`` that of the
    trajectory. The recurrent state is omitted, because it has one row per trajectory.
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
