"""Division of recorded steps into trajectories."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl4sys.datasets.steps import Steps
from rl4sys.spec import Array
from rl4sys.trajectory import OBSERVATION, Trajectory


def trajectories(steps: Steps) -> Iterator[Trajectory]:
    """Yield one trajectory per episode.

    If observations after steps were recorded, a trajectory also ends at a step whose next observation differs from the
    observation of the following row, so that shuffled steps and files with missing steps can be used.
    """
    first = 0
    for number, last in enumerate(np.flatnonzero(_is_last(steps)).tolist()):
        trajectory = _trajectory(steps, number, first, last)
        if len(trajectory):
            yield trajectory
        first = last + 1


def _is_last(steps: Steps) -> Array:
    """Return True for the last row of each trajectory."""
    last: Array = steps.terminated | steps.truncated | np.append(steps.starts[1:], True)
    for name, following in steps.next_observation.items():
        differs = following[:-1] != steps.observation[name][1:]
        last[:-1] |= differs.reshape(len(differs), -1).any(axis=1)
    return last


def _trajectory(steps: Steps, number: int, first: int, last: int) -> Trajectory:
    terminated = bool(steps.terminated[last])
    is_followed = last + 1 < len(steps) and bool(steps.starts[last + 1])
    # The observation after the last step of a terminated episode is never used. For other episodes it is needed, so
    # without it the last row only provides the final observation.
    stop = last + 1 if steps.next_observation or terminated else last
    final = steps.next_observation or steps.observation
    columns = {
        OBSERVATION + name: np.concatenate([column[first:stop], final[name][last : last + 1]])
        for name, column in steps.observation.items()
    }
    columns |= {"action": steps.action[first:stop], "reward": steps.reward[first:stop]}
    columns["log_prob"] = np.zeros(stop - first, np.float32)  # not part of a file
    return Trajectory(
        0,
        columns,
        episode=number,
        terminated=terminated,
        truncated=bool(steps.truncated[last]) or (is_followed and not terminated),
    )
