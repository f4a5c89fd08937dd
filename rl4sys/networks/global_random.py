"""Isolation of code that draws from the global random generators of torch, numpy and Python."""

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
    """Separate states of the global random generators, installed only within the context `in_use`.

    Code in this context draws from the separate states, so the random numbers of other code do not change. The states
    include the generator of a CUDA device.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._decision_bits = np.random.MT19937()
        with self._preserved():
            self.seed(seed)
            self._states = capture_random_states(device)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Context manager that installs the separate states; on exit, stores them and restores the previous states."""
        with self._preserved():
            restore_random_states(self._states, self._device)
            try:
                yield
            finally:
                self._states = capture_random_states(self._device)

    @contextmanager
    def for_decisions(self) -> Iterator[None]:
        """Context manager that installs generators for decisions; on exit, restores the previous states.

        Call `seed` before each decision. The numpy generator is replaced, because copying its state takes longer than
        a pass through a small network. Only a normal sample that numpy has cached for the next call is lost.
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
    """Return the states of the global generators by library, including the generator of a CUDA device."""
    states = {library: _CAPTURE[library]() for library in libraries}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Install states from `capture_random_states`; a CUDA state is skipped if ``device`` is not a CUDA device."""
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
