"""Trajectories of numbered steps, and functions that read the batches of a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rl4sys.buffers.base import Batch, Buffer
from rl4sys.spec import Array
from rl4sys.trajectory import Trajectory


def numbered_trajectory(  # noqa: PLR0913 - fields of a trajectory
    first: int, steps: int, *, episode: int = 0, offset: int = 0, version: int = 0, end: str = "", goal: float = 0.0
) -> Trajectory:
    """Return a trajectory of steps numbered from ``first``; observation, action and reward are the step number.

    The achieved goal is the number of the next step; ``goal`` is the desired goal.
    """
    numbers = np.arange(first, first + steps)
    seen = np.arange(first, first + steps + 1, dtype=np.float32)[:, None]
    columns: dict[str, Array] = {
        "obs.state": seen,
        "obs.achieved_goal": seen.copy(),
        "obs.desired_goal": np.full_like(seen, goal),
        "action": numbers,
        "reward": numbers.astype(np.float32),
        "log_prob": np.zeros(steps, np.float32),
    }
    return Trajectory(version, columns, episode, offset, terminated=end == "terminated", truncated=end == "truncated")


def batches(buffer: Buffer, seed: int = 0) -> Iterator[Batch]:
    """Yield the due batches, and return priorities that depend on the actions as feedback."""
    for batch in buffer.batches(np.random.default_rng(seed)):
        yield batch
        buffer.feedback(batch, {"priority": 1.0 + np.asarray(batch["action"] % 5, np.float64)})


def drain(buffer: Buffer, seed: int = 0) -> list[dict[str, Any]]:
    """Return all due batches as lists."""
    return [{name: np.array(c).tolist() for name, c in batch.items()} for batch in batches(buffer, seed)]


def feed_buffer(buffer: Buffer, steps: int, seed: int = 0) -> None:
    """Add interleaved episodes of three environments, in trajectories of random length with all kinds of ends."""
    rng = np.random.default_rng(seed)
    episodes, offsets, taken = [3 * seed * 1000, 3 * seed * 1000 + 1, 3 * seed * 1000 + 2], [0, 0, 0], 0
    while taken < steps:
        system, length = int(rng.integers(3)), int(rng.integers(1, 7))
        end = ("", "", "terminated", "truncated")[int(rng.integers(4))]
        first = 1000 * (episodes[system] % 7) + offsets[system]
        added = numbered_trajectory(
            first, length, episode=episodes[system], offset=offsets[system], end=end, goal=first + 2
        )
        buffer.add(added, version=0)
        taken, offsets[system] = taken + length, offsets[system] + length
        if end:
            episodes[system], offsets[system] = episodes[system] + 3, 0
        drain(buffer, seed=taken)
