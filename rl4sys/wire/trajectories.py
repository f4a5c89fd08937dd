"""Encoding, decoding and validation of trajectories."""

from __future__ import annotations

import numpy as np

from rl4sys.errors import NumericalError, SpecError
from rl4sys.spec import MASK, Array, Box, DiscreteSpace, Spec, allows_some_action, in_range, is_allowed
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import Trajectory as TrajectoryMessage
from rl4sys.wire.unpack import unpack

_MAX_INTEGER = 2**63 - 1
"""Maximum value of integers in a message, because SQLite and numpy store them as signed 64-bit integers."""


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
    """Return the trajectory and its sequence number; the columns are views of the decoded message.

    Raises `SpecError` if ``content`` is not a trajectory.
    """
    message = unpack(TrajectoryMessage, content, "trajectory")
    columns = {column.name: decode_column(column) for column in message.columns}
    if len(columns) < len(message.columns):
        raise SpecError("a trajectory has two columns with the same name")
    if "reward" not in columns or columns["reward"].ndim != 1:
        raise SpecError("a trajectory needs the column 'reward' with one number per step")
    if any(column.ndim == 0 for column in columns.values()):
        raise SpecError("a column of the trajectory is a scalar; expected one row per step")
    if message.sequence < 1:
        raise SpecError("the sequence number of the trajectory is 0; sequence numbers start at 1")
    if max(message.sequence, message.version, message.episode, message.offset) > _MAX_INTEGER:
        raise SpecError("the sequence, version, episode or offset of the trajectory is above 2**63 - 1")
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
    """Raise `SpecError` or `NumericalError` unless all columns fit ``spec``, are finite and contain legal actions.

    ``memory_size`` is the size of the recurrent state of the policy. If it is 0, the column ``memory`` must be missing.
    """
    if not 1 <= len(trajectory) <= max_steps:
        raise SpecError(f"the trajectory has {len(trajectory)} steps; expected 1 to {max_steps}")
    if trajectory.terminated and trajectory.truncated:
        raise SpecError("the trajectory is both terminated and truncated; at most one is allowed")
    expected = _expected_columns(spec) | ({MEMORY: ("float32", (memory_size,))} if memory_size else {})
    if set(trajectory.columns) != set(expected):
        raise SpecError(f"the trajectory has the columns {sorted(trajectory.columns)}; expected {sorted(expected)}")
    for name, (dtype, shape) in expected.items():
        _check_column(name, trajectory.columns[name], dtype, shape)
    if not isinstance(spec.action, Box):
        _check_discrete(trajectory, spec.action)


def _expected_columns(spec: Spec) -> dict[str, tuple[str, tuple[int, ...]]]:
    observations = {f"{OBSERVATION}{name}": (box.dtype, box.shape) for name, box in spec.observation.items()}
    action = {"action": (spec.action.dtype, spec.action.shape)}
    return observations | action | {"reward": ("float32", ()), "log_prob": ("float32", ())}


def _check_column(name: str, column: Array, dtype: str, shape: tuple[int, ...]) -> None:
    if column.dtype != np.dtype(dtype) or column.shape[1:] != shape:
        raise SpecError(
            f"column {name!r} is {column.dtype} of shape {column.shape[1:]} per step; expected {dtype} of shape {shape}"
        )
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        row = int(np.argwhere(~np.isfinite(column))[0][0])
        raise NumericalError(f"column {name!r} is {column[row]!s:.80} at step {row}; training needs finite numbers")


def _check_discrete(trajectory: Trajectory, action: DiscreteSpace) -> None:
    chosen = trajectory.columns["action"]
    if not in_range(action, chosen):
        last = np.array(action.choices) - 1
        given = f"{chosen.min(0)!s:.80} to {chosen.max(0)!s:.80}"
        raise SpecError(f"the actions of the trajectory range from {given}; expected 0 to {last!s:.80}")
    mask = trajectory.columns.get(OBSERVATION + MASK)
    if mask is None:
        return
    if not allows_some_action(action, mask[:-1]):
        raise SpecError("an action mask of the trajectory allows no action")
    if not is_allowed(action, chosen, mask[:-1]):
        raise SpecError("an action of the trajectory is not legal: the action mask of its step forbids it")
