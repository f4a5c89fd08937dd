"""Rollouts cut into windows, for networks that remember: they learn through the steps of one window at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl4sys.networks.base import Recurrent, Tensors, observation_of
from rl4sys.spec import Array
from rl4sys.trajectory import OBSERVATION

REMEMBERED = "~memory"
"""What was remembered before a step, as one more observation, the last by name: a critic sees it so."""

_SEEN = "window."
_VALID = "valid"


def cut(last: Array, length: int) -> Array:
    """First row and end of each window: at most ``length`` rows of one trajectory; ``last`` marks where those end."""
    ends = np.flatnonzero(last) + 1
    starts = np.concatenate([[0], ends[:-1]])
    cuts = [np.arange(start, end, length) for start, end in zip(starts, ends, strict=True)]
    ends_of_cuts = [np.append(first[1:], end) for first, end in zip(cuts, ends, strict=True)]
    return np.stack([np.concatenate(cuts), np.concatenate(ends_of_cuts)], axis=1)


def gather(rollout: Tensors, windows: Array) -> dict[str, Tensor]:
    """The rows of these windows, one after the other, and what `outputs_in_windows` needs to see them in sequence."""
    starts, ends = (torch.from_numpy(side).unsqueeze(1) for side in windows.T)
    places = starts + torch.arange(int((ends - starts).max()))
    valid = places < ends
    rows = {name: column[places[valid]] for name, column in rollout.items()}
    seen = {
        _SEEN + name: column[places.clamp(max=ends - 1)]
        for name, column in observation_of(rollout, OBSERVATION).items()
    }
    return rows | seen | {_VALID: valid}


def outputs_in_windows(network: Recurrent, rows: Tensors) -> Tensor:
    """What the network gives for each of the rows that `gather` gave, remembering from its window's start."""
    seen = observation_of(rows, _SEEN)
    outputs = network.sequence(seen, seen[REMEMBERED][:, 0])
    return outputs[rows[_VALID]]


@torch.no_grad()
def remember(network: Recurrent, observation: Tensors, memory: Tensor, last: Array) -> tuple[Tensor, Tensor]:
    """What is remembered before each row, and after the last of each trajectory, each from its ``memory``."""
    ends = np.flatnonzero(last) + 1
    starts, lengths = np.concatenate([[0], ends[:-1]]), np.diff(ends, prepend=0)
    before, memory = memory.new_zeros(len(last), memory.shape[1]), memory.clone()
    for step in range(int(lengths.max())):
        going_on = np.flatnonzero(lengths > step)
        rows = starts[going_on] + step
        before[rows] = memory[going_on]
        _, memory[going_on] = network.step(
            {name: column[rows] for name, column in observation.items()}, memory[going_on]
        )
    return before, memory
