"""A running checksum of experience, by which two runs are compared without either having kept it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from rl4sys.trajectory import MEMORY, Trajectory

_OF_THE_POLICY = ("log_prob", MEMORY)
"""What was thought, not what happened: it differs as soon as a weight does, which weights show better."""
_BYTES = 8


class ExperienceDigest:
    """64 bits that depend on all that environments showed, and all that was done, from the first step on."""

    def __init__(self, text: str | None = "") -> None:
        """Goes on from an earlier one; None if what came before is not known."""
        self.text = text

    def see(self, trajectories: Iterable[Trajectory]) -> None:
        if self.text is None:
            return
        digest = hashlib.blake2b(self.text.encode(), digest_size=_BYTES)
        for trajectory in trajectories:
            where = (trajectory.episode, trajectory.offset, trajectory.terminated, trajectory.truncated)
            digest.update(repr(where).encode())
            for name, column in trajectory.columns.items():
                if name not in _OF_THE_POLICY:
                    digest.update(np.ascontiguousarray(column).data)
        self.text = digest.hexdigest()
