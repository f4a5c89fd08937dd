"""The bytes of one snapshot as their difference from another's: lossless, and smaller where weights moved a little.

Weights that changed slightly share sign, exponent and leading digits, so their XOR has zeros there; grouping the
bytes of all words by place puts the zeros together, where zlib finds them. (zstd saves 1 % more and would be one
dependency more for every client.)
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


def difference(base: bytes, content: bytes) -> bytes | None:
    """What turns ``base`` into ``content``, if they are equally long and that is shorter than ``content``."""
    if len(base) != len(content):
        return None
    changed = np.frombuffer(base, np.uint8) ^ np.frombuffer(content, np.uint8)
    whole = len(changed) // _WORD * _WORD
    compressed = zlib.compress(changed[:whole].reshape(-1, _WORD).T.tobytes() + changed[whole:].tobytes(), _LEVEL)
    return compressed if len(compressed) < len(content) else None


def apply_difference(base: bytes, compressed: bytes) -> bytes:
    """Never more bytes than ``base`` has, whatever ``compressed`` claims."""
    inflater = zlib.decompressobj()
    try:
        regrouped = inflater.decompress(compressed, len(base) + 1)
    except zlib.error as problem:
        raise SpecError(f"a model's difference cannot be read: {problem}") from problem
    if len(regrouped) != len(base):
        raise SpecError("a model's difference does not fit the model it starts from")
    changed = np.empty(len(base), np.uint8)
    whole = len(base) // _WORD * _WORD
    flat = np.frombuffer(regrouped, np.uint8)
    changed[:whole] = flat[:whole].reshape(_WORD, -1).T.ravel()
    changed[whole:] = flat[whole:]
    return (changed ^ np.frombuffer(base, np.uint8)).tobytes()
