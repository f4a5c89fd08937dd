"""Wait for the lock of a process that was killed and has not ended yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from rl4sys.errors import RunError

_RETRY_SECONDS = 0.05


@contextmanager
def wait_for_lock(locked: Callable[[], AbstractContextManager[None]], timeout_seconds: float) -> Iterator[None]:
    """Context that holds the lock of `locked()`. Entering the context retries while `locked()` raises `RunError`.

    A killed process may hold its lock for a short time. After `timeout_seconds`, the last `RunError` is raised.
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
