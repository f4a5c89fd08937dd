"""Lossless deltas between two snapshots; small if the weights changed little.

A slightly changed weight keeps its sign, exponent and leading mantissa bits, so these bits are zero in the XOR of the
old and the new weight. Grouping the bytes of all words by position puts the zeros together for zlib. (zstd saves 1 %
more but would add a dependency to every client.)
"""

from __future__ import annotations

import hashlib
import zlib

import numpy as np

from rl4sys.errors import SpecError

_WORD = 4
_LEVEL = 6


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def make_delta(base: bytes, content: bytes) -> bytes | None:
    """Return the delta from ``base`` to ``content``; None if their lengths differ or the delta saves no bytes."""
    if len(base) != len(content):
        return None
    changed = np.frombuffer(base, np.uint8) ^ np.frombuffer(content, np.uint8)
    whole = len(changed) // _WORD * _WORD
    compressed = zlib.compress(changed[:whole].reshape(-1, _WORD).T.tobytes() + changed[whole:].tobytes(), _LEVEL)
    return compressed if len(compressed) < len(content) else None


def apply_delta(base: bytes, compressed: bytes) -> bytes:
    """Apply a delta. Limits decompression to the size of ``base``; raises `SpecError` if the delta is invalid."""
    inflater = zlib.decompressobj()
    try:
        regrouped = inflater.decompress(compressed, len(base) + 1)
    except zlib.error as problem:
        raise SpecError(f"the model delta cannot be decompressed: {problem}") from problem
    if len(regrouped) != len(base):
        raise SpecError(f"the model delta does not fit its base model of {len(base)} bytes")
    changed = np.empty(len(base), np.uint8)
    whole = len(base) // _WORD * _WORD
    flat = np.frombuffer(regrouped, np.uint8)
    changed[:whole] = flat[:whole].reshape(_WORD, -1).T.ravel()
    changed[whole:] = flat[whole:]
    return (changed ^ np.frombuffer(base, np.uint8)).tobytes()
