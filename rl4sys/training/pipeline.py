"""Concurrent collecting and learning for ``training.pipeline``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Collected = TypeVar("Collected")
Learned = TypeVar("Learned")

_SWITCH_INTERVAL_SECONDS = 1e-4


def run_concurrently(collect: Callable[[], Collected], learn: Callable[[], Learned]) -> tuple[Collected, Learned]:
    """Run ``learn`` in a second thread while ``collect`` runs in this one.

    The native core releases the GIL while it learns, so both together take about as long as the slower function.
    """
    with _short_switch_interval(), ThreadPoolExecutor(max_workers=1) as executor:
        learning = executor.submit(learn)
        return collect(), learning.result()


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Shorten the thread switch interval, so that the learning thread gets the GIL between core calls.

    With the default of 5 ms the learning thread would make no progress.
    """
    previous = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)
