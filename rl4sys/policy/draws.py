"""Random draws of policies: a counter-based stream of uniform random numbers.

Each draw is the output of SplitMix64 (Steele, Lea and Flood 2014) for the integers ``key`` and ``counter``. These two
integers are sufficient to save, resume and repeat a stream, in Python and in C++.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rl4sys.errors import SpecError

_WORD = 2**64
_STEP = np.uint64(0x9E3779B97F4A7C15)


class PythonDraws:
    """Stream of random draws, implemented in numpy."""

    def __init__(self, key: int, counter: int = 0) -> None:
        self.key = _checked("key", key)
        self.counter = _checked("counter", counter)

    def uniforms(self, count: int) -> npt.NDArray[np.float64]:
        """Return the next ``count`` draws, uniform in [0, 1)."""
        if count < 0:
            raise SpecError(f"the count of draws must be at least 0, got {count}")
        counters = np.arange(count, dtype=np.uint64) + np.uint64((self.counter + 1) % _WORD)
        self.counter = (self.counter + count) % _WORD
        words = _mix64(counters * _STEP + np.uint64(self.key))
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def state(self) -> dict[str, int]:
        return {"key": self.key, "counter": self.counter}

    def restore(self, state: Mapping[str, int]) -> None:
        self.key, self.counter = _checked("key", state["key"]), _checked("counter", state["counter"])


def _checked(name: str, value: int) -> int:
    number = index(value)
    if not 0 <= number < _WORD:
        raise SpecError(f"the {name} of draws must be in 0..2**64-1, got {number}")
    return number


def _mix64(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _native_is_usable() -> bool:
    if os.environ.get("RL4SYS_NUMPY") == "1":
        return False
    try:
        import rl4sys._core  # noqa: F401
    except ImportError:
        return False
    return True


NATIVE: bool = _native_is_usable()
"""True if the native core is installed and RL4SYS_NUMPY=1 is not set."""

if TYPE_CHECKING or not NATIVE:
    Draws = PythonDraws
else:
    from rl4sys._core import Draws

__all__ = ["NATIVE", "Draws", "PythonDraws"]
