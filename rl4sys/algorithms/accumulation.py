"""Gradient accumulation: a minibatch is computed in parts, and their gradients are summed before one optimizer step.

The loss of each part is a mean over its rows. Multiplied by the part's fraction of the rows, the losses sum to the mean
over the minibatch. The optimizer step therefore equals that of the whole minibatch up to rounding, but only one part is
in RAM at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl4sys.algorithms.windows import VALID, split_gathered
from rl4sys.networks.base import Tensors

Parts: TypeAlias = Annotated[int, Field(gt=0, le=100_000)]
"""Number of parts into which a minibatch is split for gradient accumulation."""

ACCUMULATE = "accumulate"
"""Name of the algorithm option that sets the number of parts per minibatch."""


def split_rows(rows: Tensors, parts: int) -> list[tuple[float, Tensors]]:
    """Split a minibatch into at most ``parts`` parts; return pairs (fraction of the rows, columns of the part).

    Rows from `gather_windows` are split only at the boundaries of windows.
    """
    if parts == 1:
        return [(1.0, rows)]
    if VALID in rows:
        return split_gathered(rows, parts)
    count = len(next(iter(rows.values())))
    cuts = np.linspace(0, count, min(parts, count) + 1).round().astype(int).tolist()
    return [
        ((end - start) / count, {name: column[start:end] for name, column in rows.items()})
        for start, end in pairwise(cuts)
    ]


def scaled(losses: Mapping[str, Tensor], share: float) -> Mapping[str, Tensor]:
    """Multiply the losses of a part by the part's fraction of the minibatch rows."""
    return losses if share == 1 else {name: share * loss for name, loss in losses.items()}


class PartResults:
    """Combines the metrics and result columns of the parts of a minibatch into those of the whole minibatch."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self._columns: dict[str, list[Tensor]] = {}

    def add(self, share: float, means: Mapping[str, float], **columns: Tensor) -> None:
        """Add the results of a part: metrics averaged over its rows, and columns with one entry per row.

        ``share`` is the part's fraction of the minibatch rows.
        """
        for name, value in means.items():
            self.means[name] = self.means[name] + share * value if name in self.means else share * value
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column.detach())

    def column(self, name: str) -> Tensor:
        """Return a result column of the whole minibatch, detached from the autograd graph."""
        parts = self._columns[name]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
