"""Runs a Snapshot with numpy and the native core alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.native_form import NATIVE, NativeProgram
from rl4sys.policy.numpy_form import NumpyProgram
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import MASK, Array, Columns


class SnapshotPolicy:
    """Runs a snapshot with numpy and the native core alone. May be shared between threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.spec, self.version = snapshot.spec, snapshot.version
        self._names = tuple(name for name in snapshot.spec.observation if name != MASK)
        self._masked = snapshot.spec.masked
        form = NativeProgram if NATIVE else NumpyProgram
        self._program = form(snapshot.program, snapshot.weights, input_size(snapshot.spec))
        self._action_shape = snapshot.spec.action.shape
        self.core = self._program.core
        """The program itself in the form in use, for a `Recorder`, which decides and records in one."""
        self.decide = self._program.decide
        """One row at once, ``decide(row, mask, draws) -> (action, log_prob)``: what a client calls per step.

        The row is float32, all observations but the mask side by side in the order of their names; the action is
        as drawn, and ``spec.action.legal(action)`` what the system may be given. A NaN that reaches the policy
        comes out as the log-probability.
        """

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        mask = observation[MASK] if self._masked else None
        action, log_prob = self._program.act(flat_rows(observation, self._names), mask, draws)
        return Decision(action.reshape(len(action), *self._action_shape), log_prob, memory)

    def greedy(self) -> SnapshotPolicy:
        return SnapshotPolicy(self._snapshot.greedy())

    def snapshot(self, version: int) -> Snapshot:
        return replace(self._snapshot, version=version)


def load_policy(path: str | Path) -> SnapshotPolicy:
    """The policy in a snapshot file, such as ``policy.safetensors`` of a checkpoint."""
    try:
        return SnapshotPolicy(Snapshot.from_bytes(Path(path).read_bytes()))
    except OSError as problem:
        raise SpecError(f"cannot read a policy from {path}: {problem.strerror}") from problem


def flat_rows(observation: Columns, names: tuple[str, ...]) -> Array:
    """The named observations side by side, one flat float32 row each."""
    rows = [observation[name].reshape(len(observation[name]), -1) for name in names]
    joined = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
    return np.ascontiguousarray(joined, np.float32)
