"""Model deltas: lossless, small after small updates, and with a limit for the decompressed size."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl4sys.errors import SpecError
from rl4sys.wire.delta import apply_delta, make_delta


def weights(seed: int, size: int = 5000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def test_delta_of_small_update_is_smaller_than_model() -> None:
    base = weights(0)
    moved = base + 1e-3 * weights(1)
    changed = make_delta(base.tobytes(), moved.astype(np.float32).tobytes())
    assert changed is not None
    assert len(changed) < 0.8 * base.nbytes
    assert apply_delta(base.tobytes(), changed) == moved.astype(np.float32).tobytes()


def test_delta_that_saves_no_bytes_is_omitted() -> None:
    assert make_delta(weights(0).tobytes(), np.random.default_rng(1).bytes(20_000)) is None
    assert make_delta(b"1234", b"12345") is None


@given(st.binary(max_size=200), st.data())
def test_delta_is_lossless(base: bytes, data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=len(base), max_size=len(base)))
    changed = make_delta(base, content)
    if changed is not None:
        assert apply_delta(base, changed) == content


def test_decompression_bomb_is_rejected() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(SpecError, match="does not fit"):
        apply_delta(b"1234", bomb)


@given(st.binary(max_size=100))
def test_random_bytes_are_rejected_as_delta(content: bytes) -> None:
    with pytest.raises(SpecError):
        apply_delta(weights(0, 10).tobytes(), content)
