"""Policy programs executed by the native C++ core, which clients use by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from rl4sys.errors import MissingExtraError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array, Columns


class NativeProgram:
    """Policy program in the native core, with the interface of `NumpyProgram`. Thread-safe. `NATIVE` must be True."""

    forward: Callable[[Array], Array]
    act: _Act
    decide: _Decide

    def __init__(self, program: Program, weights: Columns, input_size: int) -> None:
        if not NATIVE:
            raise MissingExtraError("the native core is not installed or RL4SYS_NUMPY=1 is set; use NumpyProgram")
        from rl4sys._core import Program as CoreProgram

        self.output_size = program.output_size(input_size, weights)
        operations = [_core_operation(operation, weights) for operation in program.operations]
        self.core = CoreProgram(operations, input_size, self.output_size if program.sees_mask else 0)
        self.memory_size = self.core.memory_size
        # Bind the core's methods directly: a Python wrapper would add 10 % to the time of a decision.
        self.forward, self.act, self.decide = self.core.forward, self.core.act, self.core.decide


class _Act(Protocol):
    def __call__(
        self, rows: Array, mask: Array | None, draws: Draws, memory: Array | None = None
    ) -> tuple[Array, Array]: ...


class _Decide(Protocol):
    def __call__(
        self, row: Array, mask: Array | None, draws: Draws, memory: Array | None = None
    ) -> tuple[int | Array, float]: ...


def _core_operation(operation: Operation, weights: Columns) -> tuple[str, list[Array], dict[str, float], list[int]]:
    arrays = [np.ascontiguousarray(weights[name], dtype=np.float32) for name in operation.weights]
    return operation.name, arrays, dict(operation.options), list(operation.inputs)


__all__ = ["NATIVE", "NativeProgram"]
