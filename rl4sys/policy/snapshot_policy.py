"""Policy that executes a `Snapshot` with the native core or numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.native_program import NATIVE, NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import MASK, Array, Columns
from rl4sys.trajectory import MEMORY


class SnapshotPolicy:
    """Policy that executes a snapshot without torch. Thread-safe."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.spec, self.version = snapshot.spec, snapshot.version
        self._names = tuple(name for name in snapshot.spec.observation if name != MASK)
        self._masked = snapshot.spec.masked
        form = NativeProgram if NATIVE else NumpyProgram
        # `NativeProgram` and `NumpyProgram` have the same interface.
        self._program = cast(NumpyProgram, form(snapshot.program, snapshot.weights, input_size(snapshot.spec)))
        self.memory_size = snapshot.memory_size
        """Length of the recurrent state (memory) vector; 0 if the policy is not recurrent."""
        self._action_shape = snapshot.spec.action.shape
        self.core = self._program.core
        """Executable program, which `Recorder` uses to select and record an action in one call."""
        self.decide = self._program.decide
        """Select a single action, for clients: ``decide(row, mask, draws, memory=None) -> (action, log_prob)``.

        ``row`` is a float32 vector: all observations except the mask, concatenated in the order of their names. Pass
        ``spec.action.legal(action)`` to the system, because a sampled action may exceed the bounds of the action
        space. A NaN input results in a NaN log-probability. ``memory`` is the recurrent state: a float32 vector of
        length ``memory_size``, zero at the start of an episode and updated in place.
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
    """Return a copy of the recurrent state passed to `Policy.act`, or zeros if none was passed."""
    return np.array(memory[MEMORY], np.float32) if MEMORY in memory else np.zeros((rows, size), np.float32)


def load_policy(path: str | Path) -> SnapshotPolicy:
    """Load a policy from a snapshot file, such as ``policy.safetensors`` in a checkpoint."""
    try:
        return SnapshotPolicy(Snapshot.from_bytes(Path(path).read_bytes()))
    except OSError as problem:
        raise SpecError(f"cannot read the policy file {str(path)!r}: {problem.strerror}") from problem


def flat_rows(observation: Columns, names: tuple[str, ...]) -> Array:
    """Flatten and concatenate the named observations into float32 rows."""
    rows = [observation[name].reshape(len(observation[name]), -1) for name in names]
    joined = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
    return np.ascontiguousarray(joined, np.float32)
