"""Safetensors encoding: compatibility with the safetensors library, and malformed input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

from rl4sys import tensors
from rl4sys.errors import SpecError

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([True, False]),
    "c": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.uint8),
}
DTYPES = ["float64", "float32", "float16", "int64", "int32", "uint8", "uint64", "bool"]


def test_safetensors_library_reads_our_files() -> None:
    loaded = safetensors.numpy.load(tensors.encode(ARRAYS, {"format": "x"}))
    assert {name: array.tolist() for name, array in loaded.items()} == {n: a.tolist() for n, a in ARRAYS.items()}


def test_decode_reads_safetensors_library_files() -> None:
    arrays, metadata = tensors.decode(safetensors.numpy.save(ARRAYS, {"author": "x"}))
    assert metadata == {"author": "x"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: nst.arrays(dtype, nst.array_shapes(min_dims=0, min_side=0, max_side=4))
        ),
        max_size=4,
    )
)
def test_arrays_round_trip_bit_for_bit(arrays: dict[str, np.ndarray]) -> None:
    decoded, _ = tensors.decode(tensors.encode(arrays, {}))
    assert decoded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (decoded[name].dtype, decoded[name].shape) == (array.dtype, array.shape)
        assert decoded[name].tobytes() == array.tobytes()


def test_encoding_does_not_depend_on_insertion_order() -> None:
    backwards = dict(reversed(list(ARRAYS.items())))
    assert tensors.encode(ARRAYS, {"x": "1", "y": "2"}) == tensors.encode(backwards, {"y": "2", "x": "1"})


def with_entry(entry: object) -> bytes:
    text = json.dumps({"a": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


INVALID = {
    "beyond the end of the file": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]},
    "shape differs from byte count": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]},
    "negative shape": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]},
    "reversed offsets": {"dtype": "F32", "shape": [0], "data_offsets": [8, 4]},
    "unsupported dtype": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 8]},
    "shape is not a number": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 8]},
    "too many axes": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]},
    "huge product of axes": {"dtype": "F32", "shape": [2**62] * 100_000, "data_offsets": [0, 4]},
    "no entry": None,
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_array_entry_is_rejected(case: str) -> None:
    with pytest.raises(SpecError, match="array 'a'"):
        tensors.decode(with_entry(INVALID[case]))


def test_overlapping_arrays_are_rejected() -> None:
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    text = json.dumps({str(number): entry for number in range(1000)}).encode()
    with pytest.raises(SpecError, match="overlap: they need 16000 bytes, the file has 16 bytes"):
        tensors.decode(len(text).to_bytes(8, "little") + text + bytes(16))


@pytest.mark.parametrize(
    "blob", [b"", b"short", (10**15).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]", bytes(20)]
)
def test_invalid_safetensors_file_is_rejected(blob: bytes) -> None:
    with pytest.raises(SpecError, match="not a safetensors file"):
        tensors.decode(blob)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_random_bytes_raise_spec_error_only(noise: bytes, place: int) -> None:
    blob = bytearray(tensors.encode(ARRAYS, {}))
    blob[place : place + len(noise)] = noise
    for candidate in (noise, bytes(blob)):
        try:
            tensors.decode(candidate)
        except SpecError:
            continue
