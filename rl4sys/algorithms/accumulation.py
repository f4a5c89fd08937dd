"""Gradient accumulation: a minibatch is computed in parts, and their gradients are summed before one optimizer step.

The loss of each part is a mean over its rows. Multiplied by the part's share of the rows, the losses sum to the mean
over the minibatch, so the step is the same up to rounding and needs memory for one part only.
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
"""Number of parts of a minibatch."""

ACCUMULATE = "accumulate"
"""Name of the option with the number of parts, in the algorithms that have it."""


def split_rows(rows: Tensors, parts: int) -> list[tuple[float, Tensors]]:
    """Split a minibatch into at most ``parts`` parts; returns each with its share of the rows.

    Rows from `gather_windows` are split between windows.
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
    """Multiply the losses of a part by its share of the minibatch."""
    return losses if share == 1 else {name: share * loss for name, loss in losses.items()}


class PartResults:
    """Metrics and columns of the parts of a minibatch, combined to those of the minibatch."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self._columns: dict[str, list[Tensor]] = {}

    def add(self, share: float, means: Mapping[str, float], **columns: Tensor) -> None:
        """Add the means over a part, and columns with one entry per row."""
        for name, value in means.items():
            self.means[name] = self.means[name] + share * value if name in self.means else share * value
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column.detach())

    def column(self, name: str) -> Tensor:
        """Return a column of the whole minibatch, without gradient."""
        parts = self._columns[name]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
