"""The hot part of a client: makes decisions and records the steps of one trajectory as columns.

Where the native core is installed it does both, and `Recorder` is its class; `NumpyRecorder` is the readable
reference with the same interface.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from rl4sys.errors import NumericalError, SpecError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.numpy_form import NumpyProgram, as_flat_row, as_mask
from rl4sys.spec import Array
from rl4sys.trajectory import MEMORY

if TYPE_CHECKING:
    from rl4sys._core import Program as CoreProgram

AnyProgram: TypeAlias = "NumpyProgram | CoreProgram"
"""A policy's ``core``: what the form of the recorder that is in use takes."""

_WORD = 2**64


@dataclass
class _Step:
    row: Array
    mask: Array
    action: int | Array
    log_prob: float
    memory: Array | None = None
    """What the policy remembers after the decision."""
    reward: float | None = None


class NumpyRecorder:
    """Decide, commit and reward each step; now and then take the fragment so far. For one thread at a time.

    ``choices`` are those of all ``action_size`` parts of an action together, of which one choice has 1, or 0 where
    actions are vectors of ``action_size`` numbers. With ``masked``, the legal choices are recorded with each row. Steps
    are numbered throughout the trajectory. What a policy remembers is kept with it, zeros at its start and where a
    policy with a memory of another size takes over.
    """

    def __init__(self, input_size: int, choices: int, action_size: int, masked: bool) -> None:
        self._input_size = _whole("input size", input_size)
        self._choices = _whole("number of choices", choices)
        self._action_size = _whole("action size", action_size)
        self._masked = masked
        self._check_sizes()
        self._limit = _WORD - 1
        self._offset = 0
        self._steps: list[_Step] = []
        self._pending: _Step | None = None
        self._fitting: NumpyProgram | None = None
        self._memory = self._memory_at_start = np.zeros(0, np.float32)

    @property
    def limit(self) -> int:
        """Steps the present fragment may have: at so many, no further decision is made."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = _whole("limit", limit)

    @property
    def steps(self) -> int:
        """Committed steps of the present fragment."""
        return len(self._steps)

    @property
    def offset(self) -> int:
        """Steps of the trajectory in the fragments taken before."""
        return self._offset

    @property
    def unrewarded(self) -> int:
        """Committed steps of the present fragment that have no reward yet."""
        return sum(step.reward is None for step in self._steps)

    def decide(
        self, program: AnyProgram, observation: Any, mask: Any, draws: Draws
    ) -> tuple[int | Array, float] | None:
        """The action as drawn and its log-probability, which are then pending in place of any decision before.

        None, and a pending decision stays as it was, if the limit is reached or the observation has a NaN or an
        infinity, and then no draw is used; and if the policy gives NaN.
        """
        row = as_flat_row(observation, self._input_size)
        legal = self._legal(mask)
        # Each recorder is given programs of its own form.
        program = cast(NumpyProgram, program)
        self._check_fit(program)
        if self.steps >= self._limit or not np.isfinite(row).all():
            return None
        # A copy: only a decision that is committed is remembered.
        memory = self._memory.copy()
        action, log_prob = program.decide(row, legal if self._masked else None, draws, memory)
        if math.isnan(log_prob):
            return None
        self._pending = _Step(row.copy(), legal.copy(), np.copy(action), log_prob, memory)
        return action, log_prob

    def pend(self, observation: Any, mask: Any, action: int | Array, log_prob: float) -> None:
        """Make a decision that was made elsewhere the pending one. The native recorder has no such method."""
        row, legal = as_flat_row(observation, self._input_size), self._legal(mask)
        self._pending = _Step(row.copy(), legal.copy(), np.copy(action), log_prob)

    def commit(self) -> int:
        """Make the pending decision a step; returns its number in the trajectory."""
        if self._pending is None:
            raise SpecError("there is no decision to record: request_for_action comes before add_to_trajectory")
        self._steps.append(self._pending)
        if self._pending.memory is not None:
            self._memory = self._pending.memory
        self._pending = None
        return self._offset + self.steps - 1

    def reward(self, step: int, value: float) -> bool:
        """Set the reward of a step, in place of an earlier one; False if its fragment was taken already."""
        step, rounded = _whole("step", step), _as_float32(value)
        if not math.isfinite(rounded):
            raise NumericalError(f"a reward is a finite float32, got {value}")
        if step < self._offset:
            return False
        if step - self._offset >= self.steps:
            raise SpecError(
                f"step {step} was given a reward; the trajectory has {self._offset + self.steps} steps, numbered from 0"
            )
        self._steps[step - self._offset].reward = rounded
        return True

    def take(self, row: Any, mask: Any) -> dict[str, Array]:
        """The present fragment as fresh arrays, and begin the next; a pending decision is forgotten.

        ``row`` is what the last action led to and becomes the last of ``steps + 1`` rows; if it is None, the last
        step's own row and mask stand in for it. A row with a NaN or an infinity is refused, and nothing is taken.
        Where the policy has memory, ``memory`` is one row: what it remembered before the fragment's first step.
        """
        last_row, last_mask = self._closing(row, mask)
        steps, self._steps, self._pending = self._steps, [], None
        self._offset += len(steps)
        action_type = np.int64 if self._choices else np.float32
        action_shape = () if self._choices and self._action_size == 1 else (self._action_size,)
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
        """Forget the last ``steps`` of the fragment, and a pending decision, which would have followed them.

        The policy goes on remembering them: what it remembered before is not kept for every step.
        """
        steps = _whole("number of steps", steps)
        if steps > self.steps:
            raise SpecError(f"the last {steps} steps cannot be dropped: the fragment has {self.steps}")
        del self._steps[self.steps - steps :]
        self._pending = None

    def _check_sizes(self) -> None:
        if self._input_size < 1 or self._action_size < 1:
            raise SpecError(
                "a recorder needs rows and actions of at least 1 number, "
                f"got {self._input_size} and {self._action_size}"
            )
        if 0 < self._choices < self._action_size:
            raise SpecError(
                f"each part of an action has at least 1 choice, got {self._action_size} parts of {self._choices}"
            )
        if self._choices == 0 and self._masked:
            raise SpecError("continuous actions take no mask")

    def _check_fit(self, program: NumpyProgram) -> None:
        if program is self._fitting:
            return
        # No rows use no draws, but show the shapes of what comes out; rows of a width it does not take are refused.
        none, memory = np.zeros((0, self._input_size), np.float32), np.zeros((0, program.memory_size), np.float32)
        actions, _ = program.act(none, None, Draws(0), memory)
        choices = program.output_size if actions.dtype == np.int64 else 0
        got = _sizes(self._input_size, choices, 1 if actions.ndim == 1 else actions.shape[1])
        expected = _sizes(self._input_size, self._choices, self._action_size)
        if got != expected:
            raise SpecError(f"the policy has {got}; the recorder has {expected}")
        self._fitting = program
        self._remember_anew_unless(program.memory_size)

    def _remember_anew_unless(self, size: int) -> None:
        """Zeros, unless the memory has that size already."""
        if len(self._memory) != size:
            self._memory = self._memory_at_start = np.zeros(size, np.float32)

    def _legal(self, mask: Any) -> Array:
        if mask is None:
            return np.ones(self._choices, np.bool_)
        if not self._masked:
            raise SpecError("a mask was given, but the spec has no mask among its observations")
        return as_mask(mask, (self._choices,))

    def _closing(self, row: Any, mask: Any) -> tuple[Array, Array]:
        """The row and mask after the last step."""
        given = None if row is None else as_flat_row(row, self._input_size)
        legal = self._legal(mask)
        if given is not None:
            if not np.isfinite(given).all():
                raise NumericalError("the row that closes a fragment has a NaN or infinity")
            return given, legal
        if mask is not None:
            raise SpecError("a mask was given without the row it belongs to")
        if not self._steps:
            raise SpecError("a fragment without steps is closed with a row; none was given")
        return self._steps[-1].row, self._steps[-1].mask


def _whole(name: str, value: int) -> int:
    number = index(value)
    if not 0 <= number < _WORD:
        raise SpecError(f"the {name} lies in 0..2**64-1, got {number}")
    return number


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))


def _sizes(inputs: int, choices: int, action_size: int) -> str:
    parts = "" if action_size == 1 else f" in {action_size} parts"
    actions = f"{choices} choices{parts}" if choices else f"actions of {action_size} numbers"
    return f"rows of {inputs} numbers and {actions}"


if TYPE_CHECKING or not NATIVE:
    Recorder = NumpyRecorder
else:
    from rl4sys._core import Recorder

__all__ = ["AnyProgram", "NumpyRecorder", "Recorder"]
