"""The policy program in the native core: the form that clients act with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rl4sys.errors import MissingExtraError
from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array, Columns


class NativeProgram:
    """The same interface and semantics as `NumpyProgram`; needs `NATIVE`. Threads may share one."""

    forward: Callable[[Array], Array]
    act: Callable[[Array, Array | None, Draws], tuple[Array, Array]]
    decide: Callable[[Array, Array | None, Draws], tuple[int | Array, float]]

    def __init__(self, program: Program, weights: Columns, input_size: int) -> None:
        if not NATIVE:
            raise MissingExtraError("the native core is not installed or RL4SYS_NUMPY=1 is set; use NumpyProgram")
        from rl4sys._core import Program as CoreProgram

        self.output_size = program.output_size(input_size, weights)
        self.core = CoreProgram([_plain(operation, weights) for operation in program.operations], input_size)
        # The core's own methods, not wrappers of them: a wrapper costs a tenth of a decision.
        self.forward, self.act, self.decide = self.core.forward, self.core.act, self.core.decide


def _plain(operation: Operation, weights: Columns) -> tuple[str, list[Array], dict[str, float]]:
    arrays = [np.ascontiguousarray(weights[name], dtype=np.float32) for name in operation.weights]
    return operation.name, arrays, dict(operation.options)


__all__ = ["NATIVE", "NativeProgram"]
