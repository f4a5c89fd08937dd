"""Inputs and outputs of a policy in an exchange format such as ONNX.

An exported model computes the greedy form of a snapshot. Its interface is the same in every format, with N rows:

===============  ==================  =============================================================================
input            type                contents
===============  ==================  =============================================================================
observation      float32 (N, row)    all observations except the mask, flattened and concatenated in order of name
mask             bool (N, actions)   True for legal actions; only if the spec has a mask
memory           float32 (N, size)   memory of a recurrent policy, zero at the start of an episode
===============  ==================  =============================================================================

===============  ==================  =============================================================================
output           type                contents
===============  ==================  =============================================================================
logits           float32 (N, k)      heads categorical and multi_categorical; action dimensions are concatenated
scores           float32 (N, k)      heads argmax, multi_argmax and epsilon_greedy; the largest score is selected
mean             float32 (N, k)      heads of continuous actions; if the head squashes, before tanh
log_std          float32 (N, k)      heads gaussian and squashed_gaussian; if the head squashes, before tanh
action           int64 or float32    greedy action, legal for the action space
next_memory      float32 (N, size)   memory for the next step
===============  ==================  =============================================================================

If the input of the head contains NaN in a row, then as in a client, the memory of this row does not change, and a
discrete action is the first legal action of each dimension.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rl4sys.errors import ExportError
from rl4sys.policy.program import Operation
from rl4sys.policy.shape_rules import CELLS
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import MASK, Array, Box, Spec, encoded_size
from rl4sys.trajectory import MEMORY

OBSERVATION, ACTION, NEXT_MEMORY = "observation", "action", "next_memory"


@dataclass(frozen=True)
class MemoryRange:
    """Range of elements in the memory vector. Only ranges with ``is_written`` are changed, by a recurrent operation."""

    start: int
    end: int
    is_written: bool


class ExportPlan:
    """Greedy form of a snapshot, with inputs and outputs as described in the docstring of this module.

    Raises `ExportError` if the network of the policy draws noise.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        _check_noise(snapshot)
        self.snapshot = snapshot
        self.spec, self.weights = snapshot.spec, snapshot.weights
        self.sampling_head, self.program = snapshot.program.head, snapshot.program.greedy()
        self.row_size, self.memory_size = input_size(snapshot.spec), snapshot.memory_size
        self.sizes = self.program.value_sizes(self.row_size, self.weights)
        """Size of each value by its number; see `Program.value_sizes`."""
        self.elements = encoded_size(snapshot.spec.action)
        """Length of the mask if actions are discrete, else number of elements of an action."""

    @property
    def head(self) -> Operation:
        """Deterministic head of the greedy form."""
        return self.program.head

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of discrete actions in each action dimension."""
        assert not isinstance(self.spec.action, Box)
        return self.spec.action.parts

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the outputs that are parameters of the action distribution."""
        if not isinstance(self.spec.action, Box):
            return ("logits",) if self.sampling_head.name.endswith("categorical") else ("scores",)
        return ("mean",) if self.log_std is None else ("mean", "log_std")

    @property
    def log_std(self) -> Array | tuple[float, float] | None:
        """Constant log_std, or (minimum, maximum) of a log_std that the network computes; None for other heads."""
        head = self.sampling_head
        if head.name == "gaussian":
            return self.weights[head.weights[0]].astype(np.float32)
        if head.name == "squashed_gaussian":
            return head.options["log_std_min"], head.options["log_std_max"]
        return None

    @property
    def inputs(self) -> dict[str, int]:
        """Length of a row of each input, by name and in order."""
        sizes = {OBSERVATION: self.row_size}
        sizes |= {MASK: self.elements} if self.spec.masked else {}
        return sizes | ({MEMORY: self.memory_size} if self.memory_size else {})

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of a row of each output, by name and in order."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(self.parameters, (self.elements,))
        shapes[ACTION] = self.spec.action.shape
        return shapes | ({NEXT_MEMORY: (self.memory_size,)} if self.memory_size else {})

    @cached_property
    def memory_ranges(self) -> list[MemoryRange]:
        """Consecutive ranges that together cover the whole memory vector."""
        ranges: list[MemoryRange] = []
        for written in sorted(self._written_ranges(), key=lambda written: written.start):
            end = ranges[-1].end if ranges else 0
            ranges += [MemoryRange(end, written.start, is_written=False)] if written.start > end else []
            ranges.append(written)
        return ranges

    @property
    def bounds(self) -> tuple[Array, Array] | None:
        """Lower and upper bounds of a continuous action, as arrays with one row; None if discrete or unbounded."""
        if not isinstance(self.spec.action, Box):
            return None
        low, high = (bound.reshape(1, -1) for bound in self.spec.action.bounds())
        return (low, high) if np.isfinite(low).any() or np.isfinite(high).any() else None

    def metadata(self) -> dict[str, str]:
        """Return version, spec and hash as in a snapshot file, and the sampling head with its options."""
        head = {"name": self.sampling_head.name, "options": dict(self.sampling_head.options)}
        return {
            "version": str(self.snapshot.version),
            "spec": json.dumps(self.spec.to_json(), sort_keys=True),
            "sha256": self.snapshot.content_hash,
            "head": json.dumps(head, sort_keys=True),
        }

    def _written_ranges(self) -> list[MemoryRange]:
        cells = [(cell, size) for cell, size in zip(self.program.body, self.sizes[1:], strict=False)]
        starts = [(int(cell.options[MEMORY]), CELLS[cell.name] * size) for cell, size in cells if cell.name in CELLS]
        return [MemoryRange(start, start + length, is_written=True) for start, length in starts]


def row_layout(spec: Spec) -> list[tuple[str, int, int]]:
    """Return name, start and end of each observation in a flat row."""
    layout, start = [], 0
    for name, box in spec.observation.items():
        if name != MASK:
            layout.append((name, start, start + box.size))
            start += box.size
    return layout


def _check_noise(snapshot: Snapshot) -> None:
    for number, operation in enumerate(snapshot.program.body, start=1):
        if operation.name == "noise" and operation.options["scale"] != 0.0:
            raise ExportError(
                f"the policy draws random numbers inside its network: {operation.name} (operation {number}) has scale "
                f"{operation.options['scale']:g}; export its deterministic form, without noise: "
                "policy.export(path, deterministic=True), or the snapshot from snapshot.greedy()"
            )
