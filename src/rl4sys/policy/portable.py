"""Runs a Snapshot with numpy and the native core alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.native_form import NATIVE, NativeProgram
from rl4sys.policy.numpy_form import NumpyProgram
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import MASK, Array, Columns
from rl4sys.trajectory import MEMORY


class SnapshotPolicy:
    """Runs a snapshot with numpy and the native core alone. May be shared between threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.spec, self.version = snapshot.spec, snapshot.version
        self._names = tuple(name for name in snapshot.spec.observation if name != MASK)
        self._masked = snapshot.spec.masked
        form = NativeProgram if NATIVE else NumpyProgram
        # Both forms have the one interface.
        self._program = cast(NumpyProgram, form(snapshot.program, snapshot.weights, input_size(snapshot.spec)))
        self.memory_size = snapshot.memory_size
        """Numbers that the policy keeps from step to step; 0 if none."""
        self._action_shape = snapshot.spec.action.shape
        self.core = self._program.core
        """The program itself in the form in use, for a `Recorder`, which decides and records in one."""
        self.decide = self._program.decide
        """One row at once, ``decide(row, mask, draws, memory=None) -> (action, log_prob)``: what a client calls.

        The row is float32, all observations but the mask side by side in the order of their names; the action is
        as drawn, and ``spec.action.legal(action)`` what the system may be given. A NaN that reaches the policy
        comes out as the log-probability. The memory of a policy that has one is float32 of shape (memory_size,), zeros
        at an episode's start, and is changed in place.
        """

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        mask = observation[MASK] if self._masked else None
        rows = flat_rows(observation, self._names)
        if self.memory_size == 0:
            action, log_prob = self._program.act(rows, mask, draws)
            return self._decision(action, log_prob, {})
        held = memory_of(memory, len(rows), self.memory_size)
        action, log_prob = self._program.act(rows, mask, draws, held)
        return self._decision(action, log_prob, {MEMORY: held})

    def greedy(self) -> SnapshotPolicy:
        return SnapshotPolicy(self._snapshot.greedy())

    def snapshot(self, version: int) -> Snapshot:
        return replace(self._snapshot, version=version)

    def _decision(self, action: Array, log_prob: Array, memory: Columns) -> Decision:
        return Decision(action.reshape(len(action), *self._action_shape), log_prob, memory)


def memory_of(memory: Columns, rows: int, size: int) -> Array:
    """A copy of what `Policy.act` is given to remember, which is zeros where it is given nothing."""
    return np.array(memory[MEMORY], np.float32) if MEMORY in memory else np.zeros((rows, size), np.float32)


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
