"""Global random generators of torch, numpy and Python, isolated for code that draws from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rl4sys.networks.plain_tree import from_plain, to_plain
from rl4sys.spec import State


class GlobalRandom:
    """Own states of the global generators. They are installed only within `in_use`.

    Code inside draws from these states, and other parts of the process are not disturbed. With a CUDA device, its
    generator is included.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._decision_bits = np.random.MT19937()
        with self._preserved():
            self.seed(seed)
            self._states = capture_random_states(device)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Install the own states; keep their progress and restore the previous states at the end."""
        with self._preserved():
            restore_random_states(self._states, self._device)
            try:
                yield
            finally:
                self._states = capture_random_states(self._device)

    @contextmanager
    def for_decisions(self) -> Iterator[None]:
        """Install generators for decisions, to be seeded with `seed`; restore the previous states at the end.

        Copying the state of numpy takes longer than a small network, so its generator is exchanged instead. Only the
        second half of a pair of normal numbers, which numpy keeps for the next call, is lost.
        """
        before, outside = capture_random_states(self._device, ("torch", "python")), np.random.mtrand.get_bit_generator()
        np.random.mtrand.set_bit_generator(self._decision_bits)
        try:
            yield
        finally:
            np.random.mtrand.set_bit_generator(outside)
            restore_random_states(before, self._device)

    @contextmanager
    def _preserved(self) -> Iterator[None]:
        before = capture_random_states(self._device)
        try:
            yield
        finally:
            restore_random_states(before, self._device)

    def seed(self, seed: int) -> None:
        """Seed all global generators. Call it within `for_decisions`."""
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - the generator that the isolated code uses
        random.seed(seed)
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):
                torch.cuda.manual_seed(seed)

    def state(self) -> State:
        plain: State = to_plain(self._states)
        return plain

    def restore(self, state: State) -> None:
        self._states = from_plain(state)


def capture_random_states(
    device: torch.device, libraries: Sequence[str] = ("torch", "numpy", "python")
) -> dict[str, Any]:
    """Return the states of the global generators by library, with that of a CUDA device."""
    states = {library: _CAPTURE[library]() for library in libraries}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Install states from `capture_random_states`; that of a CUDA device is skipped on a machine without it."""
    for library, state in states.items():
        if library in _RESTORE:
            _RESTORE[library](state)
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


_CAPTURE: Mapping[str, Callable[[], Any]] = {
    "torch": torch.get_rng_state,
    "numpy": np.random.get_state,
    "python": random.getstate,
}
_RESTORE: Mapping[str, Callable[[Any], None]] = {
    "torch": torch.set_rng_state,
    "numpy": np.random.set_state,
    "python": random.setstate,
}
