"""Recorder of a client: makes decisions and records the steps as columns. This is the hot path of a client.

`Recorder` is the class of the native core if the core is installed, else `NumpyRecorder`, the reference implementation
with the same interface.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from rl4sys.errors import NumericalError, SpecError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.numpy_program import NumpyProgram, as_flat_row, as_mask
from rl4sys.spec import Array
from rl4sys.trajectory import MEMORY

if TYPE_CHECKING:
    from rl4sys._core import Program as CoreProgram

AnyProgram: TypeAlias = "NumpyProgram | CoreProgram"
"""Executable program of a policy (`SnapshotPolicy.core`), in numpy or native to match the `Recorder` in use."""

_WORD = 2**64


@dataclass
class _Step:
    row: Array
    mask: Array
    action: int | Array
    log_prob: float
    memory: Array | None = None
    """Recurrent state (memory) of the policy after the decision."""
    reward: float | None = None


class NumpyRecorder:
    """Recorder of one episode: decide, commit and reward each step; `take` cuts the recording. Not thread-safe.

    ``action_size`` is the number of action dimensions. ``mask_size`` is the total number of discrete actions over all
    dimensions, or 0 if actions are continuous. If ``masked`` is True, the action mask is recorded with each row. Steps
    are numbered throughout the episode. The recurrent state (memory) of the policy starts at zero, and is reset to zero
    when a policy with another memory size is used.
    """

    def __init__(self, input_size: int, mask_size: int, action_size: int, masked: bool) -> None:
        self._input_size = _as_uint64("input size", input_size)
        self._mask_size = _as_uint64("mask size", mask_size)
        self._action_size = _as_uint64("action size", action_size)
        self._masked = masked
        self._check_sizes()
        self._limit = _WORD - 1
        self._offset = 0
        self._steps: list[_Step] = []
        self._pending: _Step | None = None
        self._checked_program: NumpyProgram | None = None
        self._memory = self._memory_at_start = np.zeros(0, np.float32)

    @property
    def limit(self) -> int:
        """Maximum number of steps of the current recording; at the limit `decide` returns None."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = _as_uint64("limit", limit)

    @property
    def steps(self) -> int:
        """Number of committed steps in the current recording."""
        return len(self._steps)

    @property
    def offset(self) -> int:
        """Number of steps of the episode in earlier recordings."""
        return self._offset

    @property
    def unrewarded(self) -> int:
        """Number of committed steps without a reward in the current recording."""
        return sum(step.reward is None for step in self._steps)

    def decide(
        self, program: AnyProgram, observation: Any, mask: Any, draws: Draws
    ) -> tuple[int | Array, float] | None:
        """Return the sampled action and its log-probability, and store them as the pending decision.

        Returns None and keeps the previous pending decision if the step limit is reached, if the observation is not
        finite, or if the policy returns NaN. Random numbers are drawn only in the last of these cases.
        """
        row = as_flat_row(observation, self._input_size)
        legal = self._legal(mask)
        # The agent passes numpy programs to numpy recorders and native programs to native recorders.
        program = cast(NumpyProgram, program)
        self._check_fit(program)
        if self.steps >= self._limit or not np.isfinite(row).all():
            return None
        # Use a copy, because only a committed decision may change the memory.
        memory = self._memory.copy()
        action, log_prob = program.decide(row, legal if self._masked else None, draws, memory)
        if math.isnan(log_prob):
            return None
        self._pending = _Step(row.copy(), legal.copy(), np.copy(action), log_prob, memory)
        return action, log_prob

    def pend(self, observation: Any, mask: Any, action: int | Array, log_prob: float) -> None:
        """Store a decision of the server as the pending decision. Not available in the native recorder."""
        row, legal = as_flat_row(observation, self._input_size), self._legal(mask)
        self._pending = _Step(row.copy(), legal.copy(), np.copy(action), log_prob)

    def commit(self) -> int:
        """Add the pending decision as a step. Returns the number of the step in the episode."""
        if self._pending is None:
            raise SpecError("no decision to record: call request_for_action before add_to_trajectory")
        self._steps.append(self._pending)
        if self._pending.memory is not None:
            self._memory = self._pending.memory
        self._pending = None
        return self._offset + self.steps - 1

    def reward(self, step: int, value: float) -> bool:
        """Set or replace the reward of a step. Returns False if `take` has already returned this step."""
        step, rounded = _as_uint64("step", step), _as_float32(value)
        if not math.isfinite(rounded):
            raise NumericalError(f"a reward must be a finite float32, got {value}")
        if step < self._offset:
            return False
        if step - self._offset >= self.steps:
            raise SpecError(
                f"cannot set the reward of step {step}: "
                f"the trajectory has {self._offset + self.steps} steps, numbered from 0"
            )
        self._steps[step - self._offset].reward = rounded
        return True

    def take(self, row: Any, mask: Any) -> dict[str, Array]:
        """Return the current recording as new arrays and start the next one; a pending decision is discarded.

        ``row`` is the observation after the last action and becomes the last of ``steps + 1`` rows. If ``row`` is
        None, the row and mask of the last step are repeated. A row that is not finite raises `NumericalError` and
        leaves the recorder unchanged. For recurrent policies, the column ``memory`` has one row: the recurrent state
        before the first step.
        """
        last_row, last_mask = self._final_row_and_mask(row, mask)
        steps, self._steps, self._pending = self._steps, [], None
        self._offset += len(steps)
        action_type = np.int64 if self._mask_size else np.float32
        action_shape = () if self._mask_size and self._action_size == 1 else (self._action_size,)
        columns = {
            "row": np.array([*(step.row for step in steps), last_row], np.float32),
            "mask": np.array([*(step.mask for step in steps), last_mask], np.bool_),
            "action": np.array([step.action for step in steps], action_type).reshape(len(steps), *action_shape),
            "reward": np.array([step.reward or 0.0 for step in steps], np.float32),
            "log_prob": np.array([step.log_prob for step in steps], np.float32),
        }
        if self._memory_at_start.size:
            columns[MEMORY] = self._memory_at_start[None].copy()
        self._memory_at_start = self._memory
        return {name: column for name, column in columns.items() if name != "mask" or self._masked}

    def drop(self, steps: int) -> None:
        """Discard the last ``steps`` steps of the recording and a pending decision.

        The memory (recurrent state) of the policy is not restored, because its earlier values are not stored.
        """
        steps = _as_uint64("number of steps", steps)
        if steps > self.steps:
            raise SpecError(f"cannot drop the last {steps} steps: the recording has {self.steps}")
        del self._steps[self.steps - steps :]
        self._pending = None

    def _check_sizes(self) -> None:
        if self._input_size < 1 or self._action_size < 1:
            raise SpecError(
                "a recorder needs rows and actions of at least 1 number, "
                f"got {self._input_size} and {self._action_size}"
            )
        if 0 < self._mask_size < self._action_size:
            raise SpecError(
                "each part of a discrete action needs at least 1 action, "
                f"got {self._action_size} parts and {self._mask_size} actions in total"
            )
        if self._mask_size == 0 and self._masked:
            raise SpecError("continuous actions take no mask")

    def _check_fit(self, program: NumpyProgram) -> None:
        if program is self._checked_program:
            return
        # An empty batch gives the output shapes without random draws, and checks the input size.
        empty, memory = np.zeros((0, self._input_size), np.float32), np.zeros((0, program.memory_size), np.float32)
        actions, _ = program.act(empty, None, Draws(0), memory)
        mask_size = program.output_size if actions.dtype == np.int64 else 0
        got = _describe_sizes(self._input_size, mask_size, 1 if actions.ndim == 1 else actions.shape[1])
        expected = _describe_sizes(self._input_size, self._mask_size, self._action_size)
        if got != expected:
            raise SpecError(f"the policy has {got}; the recorder has {expected}")
        self._checked_program = program
        self._reset_memory_unless(program.memory_size)

    def _reset_memory_unless(self, size: int) -> None:
        """Reset the memory to zeros unless it already has this size."""
        if len(self._memory) != size:
            self._memory = self._memory_at_start = np.zeros(size, np.float32)

    def _legal(self, mask: Any) -> Array:
        if mask is None:
            return np.ones(self._mask_size, np.bool_)
        if not self._masked:
            raise SpecError("a mask was given, but the spec has no mask among its observations")
        return as_mask(mask, (self._mask_size,))

    def _final_row_and_mask(self, row: Any, mask: Any) -> tuple[Array, Array]:
        """Return the observation row and mask after the last step."""
        given = None if row is None else as_flat_row(row, self._input_size)
        legal = self._legal(mask)
        if given is not None:
            if not np.isfinite(given).all():
                raise NumericalError("the final observation contains NaN or infinity")
            return given, legal
        if mask is not None:
            raise SpecError("a mask was given without a final observation")
        if not self._steps:
            raise SpecError("a recording without steps needs a final observation; none was given")
        return self._steps[-1].row, self._steps[-1].mask


def _as_uint64(name: str, value: int) -> int:
    number = index(value)
    if not 0 <= number < _WORD:
        raise SpecError(f"the {name} must be in 0..2**64-1, got {number}")
    return number


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))


def _describe_sizes(inputs: int, mask_size: int, action_size: int) -> str:
    parts = "" if action_size == 1 else f" in {action_size} parts"
    actions = f"{mask_size} discrete actions{parts}" if mask_size else f"continuous actions of size {action_size}"
    return f"rows of {inputs} numbers and {actions}"


if TYPE_CHECKING or not NATIVE:
    Recorder = NumpyRecorder
else:
    from rl4sys._core import Recorder

__all__ = ["AnyProgram", "NumpyRecorder", "Recorder"]
