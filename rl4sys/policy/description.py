"""Description of a snapshot as text: spaces, size, hash and program."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from rl4sys.policy.export_plan import row_layout
from rl4sys.policy.program import MASK_NUMBERS, ROW, Operation
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import MASK, Box, space_summary

_HEADINGS = ("", "operation", "input", "shape", "weights", "options")
_LISTED_BOUNDS = 6


class Description(str):
    """String whose repr is the text itself, so that consoles and notebooks display its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def describe(snapshot: Snapshot) -> Description:
    """Return spaces, number of parameters, size, hashes and program of a snapshot, with one line per operation."""
    program = _aligned([_HEADINGS, *_program_rows(snapshot)])
    return Description("\n".join([*_aligned(_summary(snapshot)), "", *program]))


def _summary(snapshot: Snapshot) -> list[tuple[str, str]]:
    content, spec = snapshot.to_bytes(), snapshot.spec
    parameters = sum(array.size for array in snapshot.weights.values())
    observations = [
        ("observation", f"{name} {_box_text(spec.observation[name])}, elements {start}:{end} of a row")
        for name, start, end in row_layout(spec)
    ]
    action = _box_text(spec.action) if isinstance(spec.action, Box) else space_summary(spec.action)
    return [
        ("version", str(snapshot.version)),
        *observations,
        ("action", action + (f", with a mask of {spec.observation[MASK].size} elements" if spec.masked else "")),
        ("memory", f"{snapshot.memory_size} numbers" if snapshot.memory_size else "none"),
        ("parameters", f"{parameters:,}"),
        ("size", f"{len(content):,} bytes"),
        ("sha256", hashlib.sha256(content).hexdigest()),
        ("content hash", snapshot.content_hash),
    ]


def _box_text(box: Box) -> str:
    limits = {*box.low, *box.high}
    if limits == {-math.inf, math.inf}:
        bounds = "unbounded"
    elif len({*box.low}) == len({*box.high}) == 1:
        bounds = f"{box.low[0]:g} to {box.high[0]:g}"
    else:
        bounds = f"{_listed(box.low)} to {_listed(box.high)}"
    return f"{box.dtype} {box.shape}, {bounds}"


def _listed(bounds: tuple[float, ...]) -> str:
    more = ", ..." if len(bounds) > _LISTED_BOUNDS else ""
    return f"({', '.join(f'{bound:g}' for bound in bounds[:_LISTED_BOUNDS])}{more})"


def _program_rows(snapshot: Snapshot) -> list[tuple[str, ...]]:
    sizes = dict(enumerate(snapshot.program.value_sizes(input_size(snapshot.spec), snapshot.weights)))
    sizes[MASK_NUMBERS] = sizes[len(snapshot.program.operations)]
    return [
        _operation_row(snapshot, sizes, number, operation)
        for number, operation in enumerate(snapshot.program.operations, start=1)
    ]


def _operation_row(snapshot: Snapshot, sizes: dict[int, int], number: int, operation: Operation) -> tuple[str, ...]:
    sources = operation.sources(number)
    is_head = number == len(snapshot.program.operations)
    shape = f"{' + '.join(str(sizes[source]) for source in sources) or 'none'} -> "
    return (
        str(number),
        operation.name,
        ", ".join({ROW: "row", MASK_NUMBERS: "mask"}.get(source, str(source)) for source in sources),
        shape + ("action" if is_head else str(sizes[number])),
        " ".join(str(snapshot.weights[name].shape) for name in operation.weights),
        ", ".join(f"{name} {value:g}" for name, value in operation.options.items()),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
