"""The description of a policy lists spaces, size, hashes and operations."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest

from rl4sys.policy.description import describe
from rl4sys.policy.program import Operation
from rl4sys.spec import Box, MultiDiscrete

from .exported import golden, single
from .test_golden import CASES, GOLDEN


def test_description_lists_spaces_hashes_and_operations() -> None:
    snapshot = single(
        Operation("multi_categorical", ("choices",)),
        MultiDiscrete((2, 3)),
        Box((2, 2), low=(-1.0,), high=(2.5,)),
        Operation("linear", ("weight", "bias")),
        Operation("slice", (), {"start": 0, "length": 2}, (-1,)),
        Operation("concat", (), {}, (1, 2)),
        Operation("linear", ("last", "shift"), {"rows": 1}),
        masked=True,
        weight=np.ones((4, 4)),
        bias=np.zeros(4),
        last=np.ones((5, 6)),
        shift=np.zeros(5),
        choices=[2, 3],
    )
    content = snapshot.to_bytes()
    assert describe(snapshot) == "\n".join(
        [
            "version       1",
            "observation   state float32 (2, 2), -1 to 2.5, elements 0:4 of a row",
            "action        MultiDiscrete(2, 3), with a mask of 5 elements",
            "memory        none",
            "parameters    57",
            f"size          {len(content):,} bytes",
            f"sha256        {hashlib.sha256(content).hexdigest()}",
            f"content hash  {snapshot.content_hash}",
            "",
            "   operation          input  shape        weights      options",
            "1  linear             row    4 -> 4       (4, 4) (4,)",
            "2  slice              mask   5 -> 2                    start 0, length 2",
            "3  concat             1, 2   4 + 2 -> 6",
            "4  linear             3      6 -> 5       (5, 6) (5,)  rows 1",
            "5  multi_categorical  4      5 -> action  (2,)",
        ]
    )


@pytest.mark.parametrize("case", CASES)
def test_description_has_one_line_per_operation(case: str) -> None:
    snapshot, text = golden(case), describe(golden(case))
    program = text.split("\n\n")[1].splitlines()[1:]
    names = [operation.name for operation in snapshot.program.operations]
    assert [line.split()[:2] for line in program] == [[str(n), name] for n, name in enumerate(names, start=1)]
    assert hashlib.sha256((GOLDEN / f"{case}.safetensors").read_bytes()).hexdigest() in text


def test_description_shows_memory_bounds_and_noise() -> None:
    assert "memory        26 numbers" in describe(golden("lstm"))
    assert "action        float32 (3,), -2 to 1.5" in describe(golden("lstm"))
    assert re.search(r"(?m)^1  noise +none -> 4 +scale 0\.5, size 4$", describe(golden("noise")))
    unequal = Box((2,), low=(-1.0, 0.0), high=(1.0,))
    assert "state float32 (2,), (-1, 0) to (1)," in describe(single(Operation("mode"), Box((2,)), unequal))
    many = Box((9,), low=tuple(range(-9, 0)))
    assert "(9,), (-9, -8, -7, -6, -5, -4, ...) to (inf)," in describe(single(Operation("mode"), Box((9,)), many))


def test_repr_of_description_keeps_line_breaks() -> None:
    text = describe(golden("squash"))
    assert repr(text) == str(text)
    assert len(repr(text).splitlines()) > 10
