"""Global random generators of torch, numpy and Python during a check."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from rl4sys.networks.global_random import capture_random_states, restore_random_states
from rl4sys.networks.plain_tree import to_plain
from rl4sys.testing.contents import contents_of, first_difference

_CPU = torch.device("cpu")


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Context manager that restores the states of the global generators."""
    before = capture_random_states(_CPU)
    try:
        yield
    finally:
        restore_random_states(before, _CPU)


def seed_global_generators(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator that must have no effect
    random.seed(seed)


@contextmanager
def watched_generators() -> Iterator[Callable[[], str]]:
    """Context manager that returns a function, which names a generator that was seeded or used; empty if none was."""
    with random_states_kept():
        # Unusual seeds, so that a component that seeds the generators changes their states.
        seed_global_generators(20_181_119)
        before = contents_of(to_plain(capture_random_states(_CPU)))
        yield lambda: first_difference(before, contents_of(to_plain(capture_random_states(_CPU)))).partition("/")[0]
