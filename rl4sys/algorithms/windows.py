"""Windows of a rollout for truncated backpropagation through time in recurrent networks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl4sys.networks.base import Recurrent, Tensors, observation_of
from rl4sys.spec import Array
from rl4sys.trajectory import OBSERVATION

MEMORY_INPUT = "~memory"
"""Name under which a critic receives the actor's recurrent state as an additional observation.

The name sorts after the names of all other observations.
"""

_SEQUENCE = "window."
VALID = "valid"
"""Name of the mask from `gather_windows`: True for the steps of a window, False for padding."""


def split_windows(last: Array, length: int) -> Array:
    """Split trajectories into windows of at most ``length`` rows; return first row and end (exclusive) of each window.

    ``last`` marks the final row of each trajectory.
    """
    ends = np.flatnonzero(last) + 1
    starts = np.concatenate([[0], ends[:-1]])
    cuts = [np.arange(start, end, length) for start, end in zip(starts, ends, strict=True)]
    ends_of_cuts = [np.append(first[1:], end) for first, end in zip(cuts, ends, strict=True)]
    return np.stack([np.concatenate(cuts), np.concatenate(ends_of_cuts)], axis=1)


def gather_windows(rollout: Tensors, windows: Array) -> dict[str, Tensor]:
    """Concatenate the rows of the windows and add the padded sequences that `outputs_in_windows` needs."""
    starts, ends = (torch.from_numpy(side).unsqueeze(1) for side in windows.T)
    rows_of_windows = starts + torch.arange(int((ends - starts).max()))
    valid = rows_of_windows < ends
    rows = {name: column[rows_of_windows[valid]] for name, column in rollout.items()}
    seen = {
        _SEQUENCE + name: column[rows_of_windows.clamp(max=ends - 1)]
        for name, column in observation_of(rollout, OBSERVATION).items()
    }
    return rows | seen | {VALID: valid}


def split_gathered(rows: Tensors, parts: int) -> list[tuple[float, Tensors]]:
    """Split rows from `gather_windows` into at most ``parts`` parts; return pairs (fraction of the rows, part).

    A window is never split.
    """
    windows = np.array_split(np.arange(len(rows[VALID])), min(parts, len(rows[VALID])))
    ends = np.cumsum(rows[VALID].sum(1).cpu().numpy())
    found: list[tuple[float, Tensors]] = []
    start = 0
    for some in windows:
        first, last, end = int(some[0]), int(some[-1]) + 1, int(ends[some[-1]])
        part = {
            name: column[first:last] if name == VALID or name.startswith(_SEQUENCE) else column[start:end]
            for name, column in rows.items()
        }
        found.append(((end - start) / int(ends[-1]), part))
        start = end
    return found


def outputs_in_windows(network: Recurrent, rows: Tensors) -> Tensor:
    """Run a recurrent network on rows from `gather_windows`.

    Each window starts from the recurrent state before its first row.
    """
    seen = observation_of(rows, _SEQUENCE)
    outputs = network.sequence(seen, seen[MEMORY_INPUT][:, 0])
    return outputs[rows[VALID]]


@torch.no_grad()
def unroll_memory(network: Recurrent, observation: Tensors, memory: Tensor, last: Array) -> tuple[Tensor, Tensor]:
    """Return the recurrent state before each row and after each trajectory.

    ``memory`` has the initial recurrent state of each trajectory.
    """
    ends = np.flatnonzero(last) + 1
    starts, lengths = np.concatenate([[0], ends[:-1]]), np.diff(ends, prepend=0)
    before, memory = memory.new_zeros(len(last), memory.shape[1]), memory.clone()
    for step in range(int(lengths.max())):
        continuing = np.flatnonzero(lengths > step)
        rows = starts[continuing] + step
        before[rows] = memory[continuing]
        _, memory[continuing] = network.step(
            {name: column[rows] for name, column in observation.items()}, memory[continuing]
        )
    return before, memory
