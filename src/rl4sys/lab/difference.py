"""Where two things that should be the same bit for bit are not, leaf by leaf."""

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
_SHOWN = 60


@dataclass(frozen=True)
class Difference:
    """One leaf that is not the same: a metric, a tensor, a number of a state."""

    step: int
    part: str
    """Which record it is of: experience, metrics, checkpoint or policy."""
    name: str
    recorded: str
    repeated: str
    largest: float | None = None
    """The largest absolute difference of numbers."""
    elements: int | None = None
    """How many elements of an array differ."""
    of_elements: int | None = None

    def in_words(self) -> str:
        if self.elements is not None:
            size = f", by {self.largest:.3g} at most" if self.largest is not None else ""
            return f"{self.name}: {self.elements:,} of {self.of_elements:,} elements differ{size}"
        size = f" (by {self.largest:.3g})" if self.largest is not None else ""
        return f"{self.name}: {self.recorded} recorded, {self.repeated} repeated{size}"


@dataclass(frozen=True)
class Place:
    """Where in the life of a run, and in which of its records, two leaves are."""

    step: int
    part: str


def compare(recorded: Any, repeated: Any, place: Place, name: str = "") -> Iterator[Difference | None]:
    """For every leaf of either tree what differs, or None. Segments are read one at a time."""
    recorded, repeated = _opened(recorded), _opened(repeated)
    if isinstance(recorded, Mapping) and isinstance(repeated, Mapping):
        for key in {**recorded, **repeated}:
            inner = f"{name}/{key}" if name else str(key)
            yield from compare(recorded.get(key, ABSENT), repeated.get(key, ABSENT), place, inner)
    elif _is_list(recorded) and _is_list(repeated) and len(recorded) == len(repeated):
        for index, (a, b) in enumerate(zip(recorded, repeated, strict=True)):
            yield from compare(a, b, place, f"{name}/{index}")
    elif isinstance(recorded, np.ndarray) and isinstance(repeated, np.ndarray):
        yield _compare_arrays(recorded, repeated, place, name)
    else:
        yield _compare_plain(recorded, repeated, place, name)


def tree_of(snapshot: Snapshot | None) -> dict[str, Any] | None:
    """A policy as a tree to compare."""
    if snapshot is None:
        return None
    return {"version": snapshot.version, "program": snapshot.program.to_json(), "weights": dict(snapshot.weights)}


def _opened(tree: Any) -> Any:
    if isinstance(tree, Segment):
        return tree.read()
    return tree.item() if isinstance(tree, np.generic) else tree


def _is_list(tree: Any) -> bool:
    return isinstance(tree, Sequence) and not isinstance(tree, str)


def _compare_plain(recorded: Any, repeated: Any, place: Place, name: str) -> Difference | None:
    numbers = all(isinstance(value, int | float) for value in (recorded, repeated))
    alone = isinstance(recorded, np.ndarray) or isinstance(repeated, np.ndarray)
    if (not alone and recorded == repeated) or (numbers and math.isnan(recorded) and math.isnan(repeated)):
        return None
    largest = abs(float(recorded) - float(repeated)) if numbers else None
    return Difference(place.step, place.part, name, _shown(recorded), _shown(repeated), largest)


def _compare_arrays(recorded: Array, repeated: Array, place: Place, name: str) -> Difference | None:
    if recorded.shape != repeated.shape or recorded.dtype != repeated.dtype:
        return Difference(place.step, place.part, name, _outline(recorded), _outline(repeated))
    differing = _bits(recorded) != _bits(repeated)
    count = int(differing.sum())
    if count == 0:
        return None
    a, b = (array.reshape(-1)[differing] for array in (recorded, repeated))
    return Difference(
        place.step,
        place.part,
        name,
        _shown(a[0]),
        _shown(b[0]),
        # Of wide integers some digits are lost, which nobody will miss.
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()),
        count,
        recorded.size,
    )


def _bits(array: Array) -> Array:
    """Each element as the integer that its bytes are: NaN equals itself, and 0 is not -0."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _outline(array: Array) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _outline(value)
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
