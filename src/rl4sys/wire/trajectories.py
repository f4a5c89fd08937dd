"""Trajectories ⇄ bytes, and what a trajectory must be to be learnt from."""

from __future__ import annotations

import numpy as np

from rl4sys.errors import NumericalError, SpecError
from rl4sys.spec import MASK, Array, Box, Choices, Spec, in_range, leaves_choice, permitted
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import Trajectory as TrajectoryMessage
from rl4sys.wire.unpack import unpack

_LARGEST = 2**63 - 1
"""Numbers of the wire are kept in SQLite and numpy as signed 64-bit integers."""


def encode_trajectory(trajectory: Trajectory, sequence: int) -> bytes:
    columns = [encode_column(name, column) for name, column in trajectory.columns.items()]
    message = TrajectoryMessage(
        sequence=sequence,
        version=trajectory.version,
        episode=trajectory.episode,
        offset=trajectory.offset,
        terminated=trajectory.terminated,
        truncated=trajectory.truncated,
        columns=columns,
    )
    return message.SerializeToString()


def decode_trajectory(content: bytes) -> tuple[Trajectory, int]:
    """The trajectory and its sequence; its columns are views of ``content``'s message."""
    message = unpack(TrajectoryMessage, content, "trajectory")
    columns = {column.name: decode_column(column) for column in message.columns}
    if len(columns) < len(message.columns):
        raise SpecError("a trajectory has two columns of one name")
    if "reward" not in columns or columns["reward"].ndim != 1:
        raise SpecError("a trajectory needs the column reward, one number per step")
    if any(column.ndim == 0 for column in columns.values()):
        raise SpecError("a trajectory's columns have a row per step; one of them is a single number")
    if message.sequence < 1:
        raise SpecError("a trajectory's sequence starts at 1")
    if max(message.sequence, message.version, message.episode, message.offset) > _LARGEST:
        raise SpecError("a number of the trajectory is beyond 2**63 - 1")
    trajectory = Trajectory(
        version=message.version,
        columns=columns,
        episode=message.episode,
        offset=message.offset,
        terminated=message.terminated,
        truncated=message.truncated,
    )
    return trajectory, message.sequence


def check_trajectory(trajectory: Trajectory, spec: Spec, max_steps: int, memory_size: int = 0) -> None:
    """Raise unless the trajectory fits ``spec`` in every column, has only numbers and only legal actions.

    ``memory_size`` is how many numbers the policy remembers; only where it does, there is a column of them.
    """
    if not 1 <= len(trajectory) <= max_steps:
        raise SpecError(f"a trajectory of {len(trajectory)} steps; it should have 1 to {max_steps}")
    if trajectory.terminated and trajectory.truncated:
        raise SpecError("a trajectory is both terminated and truncated; an episode ends one way")
    expected = _expected_columns(spec) | ({MEMORY: ("float32", (memory_size,))} if memory_size else {})
    if set(trajectory.columns) != set(expected):
        raise SpecError(f"a trajectory has the columns {sorted(trajectory.columns)}; expected {sorted(expected)}")
    for name, (dtype, shape) in expected.items():
        _check_column(name, trajectory.columns[name], dtype, shape)
    if not isinstance(spec.action, Box):
        _check_choices(trajectory, spec.action)


def _expected_columns(spec: Spec) -> dict[str, tuple[str, tuple[int, ...]]]:
    observations = {f"{OBSERVATION}{name}": (box.dtype, box.shape) for name, box in spec.observation.items()}
    action = {"action": (spec.action.dtype, spec.action.shape)}
    return observations | action | {"reward": ("float32", ()), "log_prob": ("float32", ())}


def _check_column(name: str, column: Array, dtype: str, shape: tuple[int, ...]) -> None:
    if column.dtype != np.dtype(dtype) or column.shape[1:] != shape:
        raise SpecError(
            f"column {name} holds {column.dtype} of shape {column.shape[1:]} per step; expected {dtype} of {shape}"
        )
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        row = int(np.argwhere(~np.isfinite(column))[0][0])
        raise NumericalError(
            f"column {name} is {column[row]!s:.80} at step {row}: only finite numbers can be learnt from"
        )


def _check_choices(trajectory: Trajectory, action: Choices) -> None:
    chosen = trajectory.columns["action"]
    if not in_range(action, chosen):
        last = np.array(action.choices) - 1
        raise SpecError(f"an action lies outside 0..{last!s:.80}: {chosen.min(0)!s:.80}..{chosen.max(0)!s:.80}")
    mask = trajectory.columns.get(OBSERVATION + MASK)
    if mask is None:
        return
    if not leaves_choice(action, mask[:-1]):
        raise SpecError("a mask allows no action at all")
    if not permitted(action, chosen, mask[:-1]):
        raise SpecError("an action was taken that its mask forbids")
