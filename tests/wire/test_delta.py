"""Models as differences: lossless, smaller when little moved, and never larger than announced."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl4sys.errors import SpecError
from rl4sys.wire.delta import apply_difference, difference


def weights(seed: int, size: int = 5000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def test_a_small_step_of_a_learner_costs_less_than_the_whole() -> None:
    base = weights(0)
    moved = base + 1e-3 * weights(1)
    changed = difference(base.tobytes(), moved.astype(np.float32).tobytes())
    assert changed is not None
    assert len(changed) < 0.8 * base.nbytes
    assert apply_difference(base.tobytes(), changed) == moved.astype(np.float32).tobytes()


def test_where_a_difference_saves_nothing_there_is_none() -> None:
    assert difference(weights(0).tobytes(), np.random.default_rng(1).bytes(20_000)) is None
    assert difference(b"1234", b"12345") is None


@given(st.binary(max_size=200), st.data())
def test_every_difference_leads_back(base: bytes, data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=len(base), max_size=len(base)))
    changed = difference(base, content)
    if changed is not None:
        assert apply_difference(base, changed) == content


def test_a_bomb_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(SpecError, match="does not fit"):
        apply_difference(b"1234", bomb)


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(SpecError):
        apply_difference(weights(0, 10).tobytes(), content)
