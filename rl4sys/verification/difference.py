"""Bit-exact comparison of two trees of arrays and plain values, leaf by leaf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.policy.snapshot import Snapshot
from rl4sys.segments import Segment
from rl4sys.spec import Array

ABSENT = "absent"
_MAX_TEXT = 60


@dataclass(frozen=True)
class Difference:
    """One difference between a run and its repetition, in a metric, a tensor or another value."""

    step: int
    part: str
    """Kind of record with the difference: experience, metrics, checkpoint, policy, or run for the whole run."""
    name: str
    recorded: str
    repeated: str
    largest: float | None = None
    """Largest absolute difference; None if the values cannot be subtracted."""
    elements: int | None = None
    """Number of differing elements; set only if both values are arrays of the same shape and type."""
    of_elements: int | None = None
    """Number of elements of each array; set together with `elements`."""

    def describe(self) -> str:
        if self.elements is not None:
            size = f", by at most {self.largest:.3g}" if self.largest is not None else ""
            return f"{self.name}: {self.elements:,} of {self.of_elements:,} elements differ{size}"
        size = f" (by {self.largest:.3g})" if self.largest is not None else ""
        return f"{self.name}: {self.recorded} recorded, {self.repeated} repeated{size}"


@dataclass(frozen=True)
class Location:
    """Step and kind of record (`Difference.part`) that a comparison belongs to."""

    step: int
    part: str


def compare(recorded: Any, repeated: Any, location: Location, name: str = "") -> Iterator[Difference | None]:
    """Compare two trees: yield a `Difference`, or None if equal, for each leaf. Segments are read one at a time."""
    recorded, repeated = _load(recorded), _load(repeated)
    if isinstance(recorded, Mapping) and isinstance(repeated, Mapping):
        for key in {**recorded, **repeated}:
            inner = f"{name}/{key}" if name else str(key)
            yield from compare(recorded.get(key, ABSENT), repeated.get(key, ABSENT), location, inner)
    elif _is_list(recorded) and _is_list(repeated) and len(recorded) == len(repeated):
        for index, (a, b) in enumerate(zip(recorded, repeated, strict=True)):
            yield from compare(a, b, location, f"{name}/{index}")
    elif isinstance(recorded, np.ndarray) and isinstance(repeated, np.ndarray):
        yield _compare_arrays(recorded, repeated, location, name)
    else:
        yield _compare_plain(recorded, repeated, location, name)


def snapshot_tree(snapshot: Snapshot | None) -> dict[str, Any] | None:
    """Return version, program and weights of a policy as a tree for `compare`."""
    if snapshot is None:
        return None
    return {"version": snapshot.version, "program": snapshot.program.to_json(), "weights": dict(snapshot.weights)}


def _load(tree: Any) -> Any:
    if isinstance(tree, Segment):
        return tree.read()
    return tree.item() if isinstance(tree, np.generic) else tree


def _is_list(tree: Any) -> bool:
    return isinstance(tree, Sequence) and not isinstance(tree, str)


def _compare_plain(recorded: Any, repeated: Any, location: Location, name: str) -> Difference | None:
    numbers = all(isinstance(value, int | float) for value in (recorded, repeated))
    any_array = isinstance(recorded, np.ndarray) or isinstance(repeated, np.ndarray)
    if (not any_array and recorded == repeated) or (numbers and math.isnan(recorded) and math.isnan(repeated)):
        return None
    largest = abs(float(recorded) - float(repeated)) if numbers else None
    return Difference(location.step, location.part, name, _format_value(recorded), _format_value(repeated), largest)


def _compare_arrays(recorded: Array, repeated: Array, location: Location, name: str) -> Difference | None:
    if recorded.shape != repeated.shape or recorded.dtype != repeated.dtype:
        return Difference(location.step, location.part, name, _describe_array(recorded), _describe_array(repeated))
    differing = _bits(recorded) != _bits(repeated)
    count = int(differing.sum())
    if count == 0:
        return None
    a, b = (array.reshape(-1)[differing] for array in (recorded, repeated))
    return Difference(
        location.step,
        location.part,
        name,
        _format_value(a[0]),
        _format_value(b[0]),
        # Converting 64-bit integers to float64 loses digits, which is acceptable for a value that is only displayed.
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()),
        count,
        recorded.size,
    )


def _bits(array: Array) -> Array:
    """View each element as an unsigned integer, so that NaN equals itself and 0 differs from -0."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _describe_array(array: Array) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _format_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    text = str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
