"""Wait for a lock that a dying process still holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from rl4sys.errors import RunError

_RETRY_SECONDS = 0.05


@contextmanager
def wait_for_lock(locked: Callable[[], AbstractContextManager[None]], timeout_seconds: float) -> Iterator[None]:
    """Context that holds the lock of `locked()`; entering it retries while `locked()` raises `RunError`.

    After a kill, the previous process may hold the lock for a moment longer. The last `RunError` is raised after
    `timeout_seconds`.
    """
    deadline = time.monotonic() + timeout_seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked())
                break
            except RunError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        yield
