"""What the numbers of a learner say about it, in words: inputs, outputs of layers, gradients.

Each collects from one report to the next. The limits are rules of thumb: they are where a look is worth while, and
docs/experiments.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.buffers.base import Batch
from rl4sys.errors import NumericalError
from rl4sys.spec import MASK, Array

ENOUGH_ROWS = 256
"""Rows below which a constant column may be chance."""
LARGE_INPUT = 100.0
SATURATED, SATURATED_SHARE = 0.99, 0.5
DEAD_SHARE = 0.5
EXPLODING, VANISHING = 1e4, 1e-4
_SQUASHING = (nn.Tanh, nn.Sigmoid, nn.Softsign)
_RECTIFYING = (nn.ReLU, nn.ReLU6)
_MOST_NAMED = 4


class Finding(NamedTuple):
    """Something to look into; the same one again has the same key."""

    key: str
    text: str


def not_finite(values: Tensor, of: str = "numbers") -> str:
    """``holds NaN in 3 of 64 numbers``."""
    nan, all_bad = int(torch.isnan(values).sum()), int((~torch.isfinite(values)).sum())
    kind = "NaN" if nan == all_bad else "infinity" if nan == 0 else "NaN and infinity"
    return f"holds {kind} in {all_bad:,} of {values.numel():,} {of}"


class Inputs:
    """Ranges of the columns that are learnt from, element by element."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[Array, Array]] = {}
        self._rows = 0

    def begin(self) -> None:
        self.__init__()  # type: ignore[misc]

    def see(self, batch: Batch, steps: int) -> None:
        """Raises `NumericalError` where a column is not finite."""
        for name, column in batch.items():
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                raise NumericalError(f"the column {name} of the batch at step {steps:,} is not finite")
            if name.startswith("obs.") and name != f"obs.{MASK}":
                self._widen(name, column.reshape(len(column), -1))
        self._rows += len(next(iter(batch.values())))

    def findings(self) -> Iterator[Finding]:
        for name, (low, high) in self._ranges.items():
            yield from self._constant(name, low, high)
            reach = float(np.maximum(np.abs(low.astype(float)), np.abs(high.astype(float))).max())
            if reach > LARGE_INPUT and low.dtype.kind == "f":
                yield Finding(
                    f"large {name}",
                    f"{name} reaches {reach:,.4g}, and networks learn best from numbers around 1; set "
                    "environment.normalize_obs",
                )

    def _widen(self, name: str, rows: Array) -> None:
        low, high = rows.min(0), rows.max(0)
        if name in self._ranges:
            low, high = np.minimum(low, self._ranges[name][0]), np.maximum(high, self._ranges[name][1])
        self._ranges[name] = low, high

    def _constant(self, name: str, low: Array, high: Array) -> Iterator[Finding]:
        constant = np.flatnonzero(low == high)
        if len(constant) and self._rows >= ENOUGH_ROWS:
            which = ", ".join(map(str, constant[:_MOST_NAMED])) + (", …" if len(constant) > _MOST_NAMED else "")
            yield Finding(
                f"constant {name}",
                f"{len(constant)} of the {len(low)} numbers of {name} never changed in {self._rows:,} rows that were "
                f"learnt from (number {which}): they tell the policy nothing",
            )


@dataclass
class _Layer:
    """What a layer gave since the last report."""

    module: nn.Module
    alive: Tensor | None = None
    saturated: float = 0.0
    calls: int = 0
    rows: int = 0
    reach: float = 0.0


class Outputs:
    """What layers give: how many of their units still do anything."""

    def __init__(self) -> None:
        self._layers: dict[str, _Layer] = {}
        self._before = ""
        self.newest: dict[str, Tensor] = {}
        """The last output of each layer."""

    def begin(self) -> None:
        self._layers = {}

    def see(self, name: str, module: nn.Module, output: Tensor) -> None:
        # One activation module may serve many layers, so it goes by the layer it follows.
        activation = isinstance(module, (*_SQUASHING, *_RECTIFYING))
        label = f"{self._before}.{type(module).__name__.lower()}" if activation else name
        if not activation:
            self._before = name
        layer = self._layers.setdefault(label, _Layer(module))
        self.newest[label] = output.detach()
        layer.calls += 1
        layer.rows += len(output) if output.dim() else 1
        layer.reach = max(layer.reach, float(output.abs().max()) if output.numel() else 0.0)
        if isinstance(module, _RECTIFYING):
            self._see_alive(layer, output)
        elif isinstance(module, _SQUASHING):
            layer.saturated += float((output.abs() > SATURATED).float().mean())

    def findings(self) -> Iterator[Finding]:
        for name, layer in self._layers.items():
            dead, saturated = _dead_share(layer), layer.saturated / layer.calls
            if dead > DEAD_SHARE and layer.rows >= ENOUGH_ROWS:
                yield Finding(
                    f"dead {name}",
                    f"{dead:.0%} of the units of {name} gave 0 for all of {layer.rows:,} rows: dead, and they learn "
                    "nothing more. A lower algorithm.lr, layer_norm or another activation keeps them alive",
                )
            if saturated > SATURATED_SHARE:
                yield Finding(
                    f"saturated {name}",
                    f"{saturated:.0%} of what {name} gives is beyond {SATURATED}: saturated, where gradients vanish. "
                    "Scale the observations (environment.normalize_obs), or lower algorithm.lr",
                )

    def measured(self) -> dict[str, float]:
        """Shares of dead and saturated units, where a layer can have them."""
        shares: dict[str, float] = {}
        for name, layer in self._layers.items():
            if layer.alive is not None:
                shares[f"dead/{name}"] = _dead_share(layer)
            elif isinstance(layer.module, _SQUASHING):
                shares[f"saturated/{name}"] = layer.saturated / layer.calls
        return shares

    def extremes(self) -> str:
        """Where the largest numbers are, for whoever looks for the cause of infinite ones."""
        if not self._layers:
            return "No layer has given anything yet"
        name, layer = max(self._layers.items(), key=lambda item: item[1].reach)
        return f"All layers gave finite numbers; the largest, {layer.reach:.3g}, came from {name}"

    def _see_alive(self, layer: _Layer, output: Tensor) -> None:
        alive = (output > 0).reshape(-1, output.shape[-1]).any(0)
        layer.alive = alive if layer.alive is None else layer.alive | alive


def _dead_share(layer: _Layer) -> float:
    return 0.0 if layer.alive is None else 1.0 - float(layer.alive.float().mean())


@dataclass
class Gradients:
    """The length of each weight's gradient, before it is clipped."""

    names: list[str]
    _sums: dict[str, float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _last: str = ""

    def begin(self) -> None:
        self._sums, self._counts = {}, {}

    def see(self, name: str, weight: Tensor) -> None:
        assert weight.grad is not None
        self._last = name
        self._sums[name] = self._sums.get(name, 0.0) + float(weight.grad.norm())
        self._counts[name] = self._counts.get(name, 0) + 1

    def last(self) -> str:
        return f"The last gradient that was finite is that of {self._last}" if self._last else "No gradient was finite"

    def measured(self) -> dict[str, float]:
        return {f"gradient_norm/{name}": total / self._counts[name] for name, total in self._sums.items()}

    def findings(self) -> Iterator[Finding]:
        norms = {name: total / self._counts[name] for name, total in self._sums.items()}
        largest = max(norms.values(), default=0.0)
        for name, norm in norms.items():
            if norm > EXPLODING:
                yield Finding(
                    f"exploding {name}",
                    f"the gradient of {name} is {norm:.3g} long on average, before clipping: exploding. Lower "
                    "algorithm.lr, set environment.normalize_reward, or see that algorithm.max_grad_norm is set",
                )
            elif norm == 0.0:
                yield Finding(f"no gradient {name}", f"the gradient of {name} was 0 throughout: it learns nothing")
            elif norm < VANISHING * largest and name.endswith("weight"):
                yield Finding(
                    f"vanishing {name}",
                    f"the gradient of {name} is {norm:.3g} long on average, and the largest of its algorithm "
                    f"{largest:.3g}: vanishing on its way back. Fewer layers, layer_norm or another activation help",
                )
        if self._sums:
            for name in self.names:
                if name not in norms:
                    yield Finding(f"no gradient {name}", f"no gradient reached {name} since the last row of metrics")
