"""Parts of a state that never change again, so that many checkpoints can share one copy."""

from __future__ import annotations

from collections.abc import Callable

from rl4sys.spec import Columns


class Segment:
    """Arrays that stay as they are, read when they are asked for.

    ``read`` answers until the holder forgets what it holds, so a state is written before its owner goes on.
    ``digest`` is the name of the content where it was saved, which spares reading it again for the next checkpoint.
    """

    def __init__(self, read: Callable[[], Columns], digest: str | None = None) -> None:
        self.read, self.digest = read, digest
