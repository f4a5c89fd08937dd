"""Graceful stop on Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on the first SIGINT or SIGTERM. If the signal is repeated, its previous handler is called."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: object) -> None:
        stop()
        signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def stop_flag() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first SIGINT or SIGTERM."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    with on_stop_signal(stop):
        yield lambda: stopped
