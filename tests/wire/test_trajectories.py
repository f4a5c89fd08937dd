"""Encoding of trajectories: lossless, with rejection of invalid data before arrays are allocated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl4sys.errors import NumericalError, RL4SysError, SpecError
from rl4sys.spec import MASK, Box, Discrete, MultiDiscrete, Spec, mask_box
from rl4sys.trajectory import Trajectory
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import Column
from rl4sys.wire.messages import Trajectory as TrajectoryMessage
from rl4sys.wire.trajectories import check_trajectory, decode_trajectory, encode_trajectory

SPEC = Spec({"state": Box((3,)), MASK: Box((4,), "bool", (0.0,), (1.0,))}, Discrete(4))


def trajectory(steps: int = 5, **changes: object) -> Trajectory:
    rng = np.random.default_rng(0)
    columns = {
        "obs.state": rng.standard_normal((steps + 1, 3)).astype(np.float32),
        "obs.mask": np.ones((steps + 1, 4), bool),
        "action": rng.integers(0, 4, steps),
        "reward": rng.standard_normal(steps).astype(np.float32),
        "log_prob": np.full(steps, -1.4, np.float32),
    }
    return Trajectory(7, {**columns, **changes}, episode=3, offset=11, truncated=True)


def test_trajectory_round_trip_is_bit_exact() -> None:
    sent = trajectory()
    arrived, sequence = decode_trajectory(encode_trajectory(sent, 42))
    assert sequence == 42
    assert (arrived.version, arrived.episode, arrived.offset) == (7, 3, 11)
    assert arrived.truncated
    assert not arrived.terminated
    assert set(arrived.columns) == set(sent.columns)
    for name, column in sent.columns.items():
        assert arrived.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(arrived.columns[name], column)
    check_trajectory(arrived, SPEC, max_steps=100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs.state": np.zeros((6, 2), np.float32)}, r"'obs.state' is float32 of shape \(2,\) per step; expected"),
        ({"obs.state": np.zeros((6, 3), np.uint8)}, "'obs.state' is uint8"),
        ({"obs.mask": np.zeros((6, 4), bool)}, "an action mask of the trajectory allows no action"),
        ({"obs.mask": np.eye(4, dtype=bool)[[0] * 6], "action": np.full(5, 2)}, "mask of its step forbids it"),
        ({"action": np.full(5, 4)}, "range from 4 to 4; expected 0 to 3"),
        ({"action": np.full(5, -1)}, "range from -1 to -1; expected 0 to 3"),
        ({"extra": np.zeros(5, np.float32)}, "has the columns"),
    ],
)
def test_trajectory_that_does_not_fit_spec_is_rejected(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_trajectory(trajectory(**changes), SPEC, max_steps=100)


MULTI_DISCRETE = Spec({"state": Box((3,)), MASK: mask_box(MultiDiscrete((3, 1, 2)))}, MultiDiscrete((3, 1, 2)))
ALL_BUT = np.array([True, False, True, True, True, True])


def multi_discrete(**changes: object) -> Trajectory:
    made = {"action": np.tile([2, 0, 1], (5, 1)), "obs.mask": np.tile(ALL_BUT, (6, 1))}
    return trajectory(**{**made, **changes})


def test_decoded_multi_discrete_trajectory_fits_spec() -> None:
    arrived, _ = decode_trajectory(encode_trajectory(multi_discrete(), 1))
    assert arrived.columns["action"].tolist() == [[2, 0, 1]] * 5
    check_trajectory(arrived, MULTI_DISCRETE, max_steps=100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": np.full(5, 2)}, r"'action' is int64 of shape \(\) per step; expected int64 of shape \(3,\)"),
        ({"action": np.tile([2, 1, 1], (5, 1))}, r"range from \[2 1 1\] to \[2 1 1\]; expected 0 to \[2 0 1\]"),
        ({"action": np.tile([0, 0, -1], (5, 1))}, r"expected 0 to \[2 0 1\]"),
        ({"action": np.tile([1, 0, 1], (5, 1))}, "the action mask of its step forbids it"),
        ({"obs.mask": np.tile([True] * 4 + [False] * 2, (6, 1))}, "an action mask of the trajectory allows no action"),
        ({"obs.mask": np.ones((6, 4), bool)}, r"'obs.mask' is bool of shape \(4,\)"),
    ],
)
def test_invalid_multi_discrete_action_is_rejected(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_trajectory(multi_discrete(**changes), MULTI_DISCRETE, max_steps=100)


@pytest.mark.parametrize("column", ["obs.state", "reward", "log_prob"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_numbers_are_rejected(column: str, bad: float) -> None:
    values = trajectory().columns[column].copy()
    values[2] = bad
    with pytest.raises(NumericalError, match=f"column '{column}' is .* at step 2"):
        check_trajectory(trajectory(**{column: values}), SPEC, max_steps=100)


def test_invalid_number_of_steps_is_rejected() -> None:
    with pytest.raises(SpecError, match="5 steps; expected 1 to 4"):
        check_trajectory(trajectory(), SPEC, max_steps=4)
    with pytest.raises(SpecError, match="0 steps"):
        check_trajectory(trajectory(steps=0), SPEC, max_steps=4)


@pytest.mark.parametrize(
    "column",
    [
        Column(name="reward", dtype="DTYPE_FLOAT32", shape=[2**62, 2**62], values=b"1234"),
        Column(name="reward", dtype="DTYPE_FLOAT32", shape=[2], values=b"1234"),
        Column(name="reward", dtype="DTYPE_FLOAT32", shape=[0, 2**63], values=b"1234"),
        Column(name="reward", dtype="DTYPE_UNSPECIFIED", shape=[1], values=b"1234"),
        Column(name="reward", dtype="DTYPE_FLOAT32", shape=[1] * 60, values=b"1234"),
    ],
)
def test_column_with_wrong_size_is_rejected(column: Column) -> None:
    with pytest.raises(SpecError):
        decode_column(column)


def test_unsupported_dtype_is_reported() -> None:
    with pytest.raises(SpecError, match="column 'x' has dtype complex128"):
        encode_column("x", np.zeros(2, complex))


def test_integers_beyond_signed_64_bits_are_rejected() -> None:
    content = encode_trajectory(trajectory(), 1)
    message = TrajectoryMessage.FromString(content)
    message.episode = 2**64 - 1
    with pytest.raises(SpecError, match=r"episode or offset of the trajectory is above 2\*\*63 - 1"):
        decode_trajectory(message.SerializeToString())


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_rl4sys_errors(content: bytes) -> None:
    try:
        arrived, _ = decode_trajectory(content)
        check_trajectory(arrived, SPEC, max_steps=100)
    except RL4SysError:
        pass


@given(st.integers(0, 400), st.binary(min_size=1, max_size=4), st.integers(0, 400))
def test_damaged_trajectories_raise_only_rl4sys_errors(start: int, put: bytes, cut: int) -> None:
    content = bytearray(encode_trajectory(trajectory(), 1))
    content[start : start + len(put)] = put
    try:
        arrived, _ = decode_trajectory(bytes(content[: len(content) - cut]))
        check_trajectory(arrived, SPEC, max_steps=100)
    except RL4SysError:
        pass


def test_generated_message_files_are_up_to_date(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    subprocess.run(["bash", str(root / "scripts/generate_proto.sh"), str(tmp_path)], check=True, capture_output=True)
    for name in ("messages.pyi", "training.binpb"):
        assert (tmp_path / name).read_bytes() == (root / "rl4sys/wire" / name).read_bytes(), name
