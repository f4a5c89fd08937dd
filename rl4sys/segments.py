"""Segments: immutable arrays of a state, stored once and shared between checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from rl4sys.spec import Columns


class Segment:
    """Immutable arrays of a state. They are loaded lazily, when a checkpoint has to store them.

    Call ``read`` before the owner of the state continues, because the owner may then overwrite the arrays. ``digest``
    is the content hash of a saved segment; the next checkpoint reuses the file without reading the arrays again.
    """

    def __init__(self, read: Callable[[], Columns], digest: str | None = None) -> None:
        self.read, self.digest = read, digest
